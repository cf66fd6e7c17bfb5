# SPDX-License-Identifier: Apache-2.0
"""The state of a session that a script saves, so that a new process goes on with it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from . import _sluice
from ._errors import SluiceError
from ._tensors import Row, laid_out, new, raw

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")


def belongs_to(state: Mapping[str, Any], rank: int, world_size: int) -> bool:
    """Returns whether a state has no residual, or is that of this rank among as many ranks."""
    return state.get("residual") is None or (state.get("rank"), state.get("world_size")) == (rank, world_size)


class Resuming:
    """The part of `Session` that saves and loads. `Session` documents the attributes."""

    rank: int
    world_size: int
    step: int
    _job: _sluice.JobSummary
    _rows: list[Row]
    _last: _sluice.StepResult | None
    _loaded: Mapping[str, Any] | None
    _restored: bytes

    @property
    def joined(self) -> bool:
        """Whether the tensors are known and all ranks are there."""
        raise NotImplementedError

    def _live(self) -> _sluice.Session:
        raise NotImplementedError

    def _located(self, call: Callable[[], _T], what: str) -> _T:
        raise NotImplementedError

    # In a script's own files.

    def state_dict(self) -> dict[str, Any]:
        """Returns what this rank needs to go on in a new job. Each rank has a state of its own. Call it between two steps.

        The residual is what compression has left out of this rank's gradients so far. It takes as much memory as the parameters
        in float32. What the shards have left out of the means, and their momentum in mode ``local_sgd``, is not in the state.

        Returns:
            version, step, rank, world_size, uplink and downlink. If the session has joined, also residual, which has a float32
            tensor for each parameter's name, and compressor, which has the rest as a tensor of bytes.

        Raises:
            SluiceError: A step is open: a gradient has been handed over, and `wait` has not been called.
        """
        import torch

        state: dict[str, Any] = {"version": 1, "step": self.step, "rank": self.rank, "world_size": self.world_size}
        state |= {"uplink": self._job.uplink, "downlink": self._job.downlink}
        if self.joined:
            core = self._live()
            residual = {row[0]: new(row, torch.float32) for row in self._rows}
            rest = self._located(lambda: core.save_compressor(_places(residual)), "state")
            state |= {"residual": residual, "compressor": torch.frombuffer(bytearray(rest), dtype=torch.uint8)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state of `state_dict` in a new job with the same model, codecs and number of ranks, before its first step.

        If the session has not joined, `join` does it, and raises the errors. A state without a residual changes nothing. The
        numbers of steps begin with 1 again.

        Args:
            state: What `state_dict` returned on this rank.

        Raises:
            SluiceError: The version, the codecs, the tensors, the rank or the number of ranks differ, the state is damaged, or the
                session has made a step. Nothing has changed then.
        """
        if state.get("version") != 1:
            raise SluiceError(f"the state has version {state.get('version')!r}, wanted 1", code="INVALID_ARGUMENT")
        for key, own in (("uplink", self._job.uplink), ("downlink", self._job.downlink)):
            if state.get(key) != own:
                raise SluiceError(f"the state was saved with {key} {state.get(key)!r}, and this job has {own!r}", code="FAILED_PRECONDITION")
        if not belongs_to(state, self.rank, self.world_size):
            raise SluiceError(
                f"the state is that of rank {state.get('rank')} of {state.get('world_size')}, and this is rank {self.rank} of "
                f"{self.world_size}: let each rank load its own state, or load none, which loses what compression has left out",
                code="FAILED_PRECONDITION",
                rank=self.rank,
            )
        if state.get("residual") is not None:
            self._loaded = state
            if self.joined:
                self._load()

    def _load(self) -> None:
        """Loads the state that `load_state_dict` got, if any."""
        state, self._loaded = self._loaded, None
        if state is None:
            return
        core = self._live()
        residual: Mapping[str, torch.Tensor] = state["residual"]
        for name, row in zip(residual, self._rows, strict=False):
            found = (name, list(residual[name].shape) or [1])
            if found != (row[0], row[1]):
                raise self._unfit(f"has {found[0]} of shape {tuple(found[1])}, and the session has {row[0]} of shape {tuple(row[1])}")
        if len(residual) != len(self._rows):
            raise self._unfit(f"has {len(residual)} tensors, and the session has {len(self._rows)}")
        laid = {row[0]: laid_out(residual[row[0]], row) for row in self._rows}
        rest = bytes(raw(state["compressor"]))
        self._located(lambda: core.restore_compressor(rest, _places(laid)), "state")

    def _unfit(self, why: str) -> SluiceError:
        return SluiceError(f"rank {self.rank}: the state {why}", code="INVALID_ARGUMENT", rank=self.rank)

    # In the job's checkpoints.

    @property
    def checkpoint_due(self) -> bool:
        """Whether the job wants a checkpoint of the state after the last step: call `save_checkpoint` once the step is applied."""
        return self._last is not None and self._last.checkpoint_due

    def save_checkpoint(self, state: Any) -> None:
        """Saves a checkpoint of the script's state and of the job's, residuals and all. Writes in the background.

        Args:
            state: What this rank needs to go on after this step, such as the ``state_dict`` of the model and of the optimizer.
                ``torch.save`` must be able to write it.

        Raises:
            SluiceError: No checkpoint is due.
        """
        import torch

        core = self._live()
        file = io.BytesIO()
        torch.save(state, file)
        self._located(lambda: core.save_checkpoint(file.getvalue()), "checkpoint")

    @property
    def restored(self) -> Any:
        """What this rank gave to `save_checkpoint` after step `restored_step`, with tensors in the host's memory; None without a checkpoint.

        If the number of ranks has changed from R, it is the state of rank ``rank % R``.
        """
        import torch

        if not self._restored:
            return None
        return torch.load(io.BytesIO(self._restored), map_location="cpu", weights_only=False)


def _places(tensors: Mapping[str, torch.Tensor]) -> list[tuple[int, int]]:
    return [(tensor.data_ptr(), tensor.numel()) for tensor in tensors.values()]
