# SPDX-License-Identifier: Apache-2.0
"""Session: one process's seat in a job."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from . import _sluice
from ._buffers import Buffers
from ._drift import Checksums
from ._errors import ForkError, RollbackError, SluiceError
from ._figures import Figures, Sink
from ._forecast import Meter
from ._log_level import LogLevel, say
from ._means import finish_step, write_mean
from ._patience import patiently
from ._publish import Published
from ._report import Reporting
from ._run_report import RunReport
from ._servers import ShardProcess, TokenFile
from ._staging import Staging
from ._state import Resuming
from ._tensors import Row, describe, laid_out, sha256, to_host
from ._world import World

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset, DistributedSampler

_EXIT_LOST_OTHERS = 75  # As sluice-worker's: a supervisor starts this rank again, and it goes on from the checkpoint.
_T = TypeVar("_T")
_open: dict[int, Session] = {}  # By id, in the order in which they were made.


class Session(Reporting, Resuming):
    """One process's seat in a job. `sluice.init` and `sluice.attach` make it.

    A session is a context manager: it closes at the end of the block, and tells the others if the block raised. A session
    that is still open at the end of the process closes by itself.

    Attributes:
        rank: The rank of this process.
        world_size: The number of ranks.
        step: The last step that ended; 0 before the first.
        restored_step: The step of the checkpoint that this rank continued from; 0 if it started without one.
        status_page: The URL of the status page; None on ranks that started no shard 0.
    """

    # Steps of all sessions of this process in which a mean does not cover every rank, although the job waits for all.
    incomplete_steps: ClassVar[int] = 0
    _alone: ClassVar[bool] = False

    def __init__(
        self,
        core: _sluice.Session,
        *,
        rank: int,
        world_size: int,
        shards: Sequence[ShardProcess] = (),
        token: TokenFile | None = None,
        quiet: bool = False,
        hosts: Sequence[str] = (),
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._place = World(rank, world_size)  # Among all processes; `fsdp_attach` has a session for each shard.
        self.step = 0
        self.restored_step = 0
        self.status_page = next((shard.status_page for shard in shards if shard.shard == 0), None)
        self._core: _sluice.Session | None = core
        self._job = core.job()
        self._staging = Staging(core)
        self._shards = list(shards)
        self._token = token
        self._hosts = list(hosts)  # The host of each rank; empty if the servers were running already.
        self._quiet = quiet
        self._pid = os.getpid()
        self._rows: list[Row] = []
        self._index: dict[int, int] = {}  # By the address of the parameter's data.
        self._last: _sluice.StepResult | None = None
        self._held: list[tuple[int, torch.Tensor]] = []  # What the core reads until the step ends.
        self._pending: list[tuple[Any, Any]] = []  # Of the DDP hook: buckets and their futures.
        self._sinks: list[tuple[Sink, int, list[Figures]]] = []
        self._told_of_skips = False
        self._meter = Meter()
        self._buffers = Buffers(0, [])
        self._followed = Published([], [])
        self._skips = False  # In the step that is open.
        self._loaded: Mapping[str, Any] | None = None  # What `load_state_dict` got before the session joined.
        self._restored = b""  # What this rank gave to `save_checkpoint` before.
        self._rolled_back = False  # The job goes on from a checkpoint, in new sessions.
        self._published: list[torch.Tensor] = []  # In mode local_sgd: the parameters of the last exchange, as the core wrote them.
        self._run_report = RunReport(rank)
        _open[id(self)] = self

    # What a session is about.

    @property
    def joined(self) -> bool:
        """Whether the tensors are known and all ranks are there."""
        return bool(self._rows)

    def join(self, parameters: Sequence[tuple[str, torch.Tensor]], buffers: Sequence[tuple[str, torch.Tensor]] = ()) -> None:
        """Tells the job which tensors this rank trains, and waits for all ranks.

        Where the ranks' values differ, all take those of rank 0. In mode ``sync``, each rank later compares checksums with the
        others every ``buffer_sync_interval`` steps, and names parameters that differ: it reads all, and sends 4 bytes for each.

        Args:
            parameters: Names and tensors, the same on all ranks, in the order in which the forward pass uses them.
            buffers: Names and tensors of buffers, which `wait` averages over the ranks every ``buffer_sync_interval`` steps.

        Raises:
            SluiceError: The ranks disagree, a rank does not come, or a parameter cannot be exchanged.
        """
        if self.joined:
            raise SluiceError("this session has joined already: one session exchanges one model", code="FAILED_PRECONDITION")
        core = self._live()
        rows = [describe(name, parameter) for name, parameter in parameters]
        own = Buffers(len(rows), buffers, Checksums(parameters) if self._job.mode == "sync" and not self._alone else None)
        tensors = [parameter for _, parameter in parameters] + own.tensors
        found = self._patient(lambda: core.join(rows + own.rows, sha256(tensors)))
        self._rows = rows
        self._buffers = own
        self._followed = Published(rows, [parameter for _, parameter in parameters])
        self._index = {id(parameter): i for i, (_, parameter) in enumerate(parameters)}
        self.step = max(found.first_step, 1) - 1
        self.restored_step, self._restored = found.restored_step, found.restored
        if not found.parameters_agree:
            self._agree(tensors)
        self.set_work(1)
        self._load()
        if self._place.rank == 0 and not self._quiet:
            self._greet()

    def _agree(self, tensors: Sequence[torch.Tensor]) -> None:
        core = self._live()
        values = [laid_out(tensor.detach(), row) for tensor, row in zip(tensors, self._rows + self._buffers.rows, strict=True)]
        places = [(value.data_ptr(), value.numel()) for value in values]
        self._patient(lambda: core.agree_on_parameters(places))
        for tensor, value in zip(tensors, values, strict=True):
            if value.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(value.reshape(tensor.shape))
        if self._job.sends_weights:
            self._published = [value.clone() for value in values[: len(self._rows)]]

    def require_gradients(self, user: str) -> None:
        """Checks that the job exchanges gradients, and not the changes of parameters after local steps.

        Args:
            user: The function that needs gradients.

        Raises:
            SluiceError: The job's mode is ``local_sgd``. The message begins with `user`.
        """
        if self._job.sends_weights:
            raise SluiceError(
                f"{user} exchanges gradients in each step, and this session's job has `mode: local_sgd`: use sluice.DiLoCo or "
                "sluice.LocalSGD, or make the session without local_steps",
                code="FAILED_PRECONDITION",
                rank=self.rank,
            )

    def index_of(self, parameter: torch.Tensor) -> int | None:
        """Returns the number of a parameter in the tensor table; None: it is not one of those that were joined with.

        Args:
            parameter: The tensor object itself, not a copy.
        """
        return self._index.get(id(parameter))

    # A step.

    def sampler(self, dataset: Dataset[Any], **options: Any) -> DistributedSampler[Any]:
        """Returns a sampler that gives this rank its part of a dataset, for the ``sampler`` of a ``DataLoader``.

        Args:
            dataset: A dataset with a length.
            **options: Those of ``torch.utils.data.DistributedSampler``, such as ``shuffle``, ``seed`` and ``drop_last``.
        """
        from torch.utils.data import DistributedSampler

        return DistributedSampler(dataset, num_replicas=self._place.size, rank=self._place.rank, **options)

    def set_work(self, samples: int, steps: int = 1) -> None:
        """Says what the next gradients are made from, before their `submit`. Jobs with ``merge_weights: tokens`` weigh them.

        Args:
            samples: This rank's samples, or tokens, since the last exchange, at least 1. The weight is samples² / steps.
            steps: Its steps since then, at least 1.
        """
        self._located(lambda: self._live().set_work(samples, steps), "work")

    def submit(self, tensor: int, gradient: torch.Tensor, scale: float = 1.0) -> None:
        """Hands a gradient over. It must stay as it is until `wait` returns. Does not wait.

        Args:
            tensor: The number of the parameter in the tensor table.
            gradient: A dense tensor of the parameter's shape, of any floating-point type. In mode ``local_sgd``: the parameter's
                values after the last exchange minus its present ones.
            scale: Each element is multiplied by it.
        """
        core = self._live()
        row = self._rows[tensor]
        self._followed.offer(core, self.step)

        def hand_over() -> None:
            staged = self._staging.holds(gradient)
            host = gradient if staged else to_host(gradient, row)
            self._held.append((tensor, host))
            (self._staging.submit if staged else self._staging.submit_here)(tensor, host, row, scale)

        self._located(hand_over, f"{self._quantity} of {row[0]}")

    def skip(self) -> None:
        """Takes part in the step with nothing, instead of all its gradients: this rank has no data left."""
        core = self._live()
        self._followed.offer(core, self.step)
        self._located(core.skip, "skipping the step")
        self._skips = True

    def wait(self, means: Mapping[int, torch.Tensor] | None = None) -> None:
        """Waits until the step is closed on all shards. Ctrl-C ends the waiting, and tells the other ranks.

        Args:
            means: Tensors by number, as for `apply`. Each gets its mean as soon as that has arrived, or NaN where no rank has
                contributed a finite gradient. They may be the gradients that were submitted.
        """
        core = self._live()
        names = f" of {self._rows[self._held[-1][0]][0]} and {len(self._held) - 1} more" if self._held else ""
        self._located(lambda: self._staging.drain(self._drain_log), f"exchange{names}")
        if not self._skips:
            self._located(lambda: self._buffers.submit(core), "buffers")
        self._skips = False
        self._last = self._located(lambda: finish_step(core, self._staging, self._rows, means or {}, self._drain_log), f"exchange{names}")
        self._held.clear()
        if self._last.buffers_averaged:
            self._located(lambda: self._buffers.apply(core), "buffers")
        self.step = self._last.step
        self._run_report.step()
        self._observe(core)
        if self._job.waits_for_all and not self._job.sends_weights and self._last.n_min < self.world_size:
            Session.incomplete_steps += 1
        if self._last.bundles_skipped_here and not self._told_of_skips:
            self._told_of_skips = True
            self._say(
                LogLevel.WARNING,
                f"rank {self.rank}, step {self.step}: the {self._quantity} of {self._last.first_skipped_tensor} is not finite, so "
                f"{self._last.bundles_skipped_here} of {self._last.bundles} parts of this rank's {self._quantity} were left out "
                "(Session.figures counts them; this is said once)",
            )

    @property
    def _quantity(self) -> str:
        return "change" if self._job.sends_weights else "gradient"

    def apply(self, tensor: int, mean: torch.Tensor, scale: float = 1.0) -> None:
        """Writes the mean of a parameter's gradients over all ranks, times `scale`, into `mean`. After `wait`.

        Args:
            tensor: The number of the parameter in the tensor table.
            mean: A dense tensor of the parameter's shape, of any floating-point type. Values beyond its range become infinite.
            scale: A factor, for example the loss scale that `submit` divided by.
        """
        core = self._live()
        row = self._rows[tensor]
        self._located(lambda: write_mean(core, self._staging, tensor, row, mean, scale), f"mean of {row[0]}")

    def apply_update(self, tensor: int, parameters: torch.Tensor) -> None:
        """Adds the shards' update to the parameters of the last exchange, in mode ``local_sgd``. After `wait`.

        Args:
            tensor: The number of the parameter in the tensor table.
            parameters: A float32 tensor of the parameter's shape, in the host's memory, as `join` or this method left it.
        """
        core = self._live()
        row = self._rows[tensor]
        self._located(lambda: core.apply_update(tensor, parameters.data_ptr(), parameters.numel()), f"update of {row[0]}")

    def without_mean(self) -> set[int]:
        """Returns the numbers of the parameters that no rank has contributed a finite gradient to. After `wait`."""
        return set(self._last.without_mean) if self._last else set()

    def compare_parameters(self, parameters: Sequence[torch.Tensor]) -> None:
        """Tells the job the sha256 of this rank's parameters. A rank that differs ends the job with an error.

        The error names the parameters that differ if the ranks have compared their checksums before (see `join`). The call reads
        all parameters, and copies them from a GPU.

        Args:
            parameters: The tensors of `join`, in the same order.
        """
        self._live().report_parameters(self.step, sha256(parameters))

    # Its end.

    def close(self) -> None:
        """Leaves the job in order. The rank that started shards waits until all ranks have left."""
        core, self._core = self._core, None
        if core is None or os.getpid() != self._pid:
            return
        try:
            if self.joined:
                self._followed.offer(core, self.step, is_last=True)
                self._run_report.write(core.figures())
                self._patient(core.leave, core)
                for shard in self._shards:
                    for _ in shard.wait():
                        self._drain_log(core)
        finally:
            self._end(core)

    def abandon(self, why: str) -> None:
        """Gives up, and tells the other ranks why, so that they end with the reason. Never raises.

        Args:
            why: The reason, which the errors of the other ranks quote.
        """
        core, self._core = self._core, None
        if core is None or os.getpid() != self._pid:
            return
        try:
            if not self._rolled_back:
                core.abandon(why)
        finally:
            self._end(core)

    def _end(self, core: _sluice.Session) -> None:
        for shard in self._shards:
            # The shard tells the other ranks first.
            list(shard.wait(2.0 if self.joined else 0.0))
            shard.end()
        if self._token is not None:
            self._token.close()
        self._drain_log(core)
        self._staging.end()
        core.close()
        self._staging.free()
        _open.pop(id(self), None)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abandon(_in_a_word(error))

    def __getstate__(self) -> dict[str, Any]:
        # DDP objects are pickled, and their hook's state with them. The copy takes no part in the job.
        return {"rank": self.rank, "world_size": self.world_size, "step": self.step, "_core": None, "_pid": self._pid}

    def _live(self) -> _sluice.Session:
        if os.getpid() != self._pid:
            raise ForkError(
                f"this session belongs to process {self._pid}, which forked process {os.getpid()}: use it there alone",
                code="FAILED_PRECONDITION",
                rank=self.rank,
            )
        if self._core is None:
            raise SluiceError("this session is closed", code="FAILED_PRECONDITION", rank=self.rank)
        return self._core

    def _located(self, call: Callable[[], _T], what: str) -> _T:
        """Calls, with the rank, the step and the tensor in the message of an error. An interrupt tells the other ranks."""
        try:
            return call()
        except SluiceError as error:
            self._drain_log()
            self._rolled_back |= isinstance(error, RollbackError)
            raise error.located(self.rank, self.step + 1, what + self._difference()) from None
        except KeyboardInterrupt:
            self.abandon("interrupted by the user")
            raise

    def _patient(self, call: Callable[[], _T], core: _sluice.Session | None = None) -> _T:
        """Calls `patiently`. An interrupt tells the other ranks."""
        live = core or self._live()
        try:
            return patiently(
                call,
                lambda: self._drain_log(live),
                lambda error: live.abandon("interrupted by the user" if isinstance(error, KeyboardInterrupt) else _in_a_word(error)),
            )
        except SluiceError as failure:
            self._rolled_back |= isinstance(failure, RollbackError)
            raise failure.located(self.rank, None, "job") from None

    def _drain_log(self, core: _sluice.Session | None = None) -> None:
        core = core or self._core
        for level, component, text in core.take_log() if core is not None else ():
            self._say(LogLevel(level), f"{component}: {text}")

    def _say(self, level: LogLevel, text: str) -> None:
        say(level, text, quiet=self._quiet)


class LocalSession(Session):
    """A session of a process that is alone: both codecs run with their error feedback, and nothing is sent."""

    _alone = True


def _in_a_word(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by the user"
    return f"{type(error).__name__}: {error}"[:300]


def open_sessions() -> list[Session]:
    """Returns this process's open sessions, oldest first. All ranks have to close them in the same order."""
    return [session for session in _open.values() if session._pid == os.getpid()]


def _close_all() -> None:
    """Closes the session when the process ends. After an uncaught exception, it reports the exception to the other ranks."""
    error = getattr(sys, "last_value", None)
    for session in open_sessions():
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            session.abandon(_in_a_word(error))
            continue
        try:
            session.close()
        except SluiceError as failure:
            print(f"sluice: ERROR {failure}", file=sys.stderr, flush=True)
    if isinstance(error, RollbackError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_EXIT_LOST_OTHERS)


atexit.register(_close_all)
