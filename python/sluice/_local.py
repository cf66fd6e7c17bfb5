# SPDX-License-Identifier: Apache-2.0
"""Local steps: each rank trains on its own, and the ranks exchange the changes of their parameters once in a round."""

from __future__ import annotations

import types
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from ._buffers import averaged_buffers
from ._errors import SluiceError
from ._init import trainable
from ._optimizer import DistributedOptimizer
from ._session import Session, _in_a_word
from ._streaming import Fragments


class _AfterStep:
    """Calls a function after each step of an optimizer, until `remove`. For PyTorch 1.13, which has no hook for that."""

    def __init__(self, optimizer: torch.optim.Optimizer, call: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._call: Callable[[], None] | None = call
        self._before = vars(optimizer).get("step")  # A scheduler's, for example.
        step = self._before or types.MethodType(type(optimizer).step, optimizer)

        def stepped(_: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
            result = step(*arguments, **options)
            if self._call is not None:
                self._call()
            return result

        if hasattr(step, "_with_counter"):
            stepped._with_counter = True  # type: ignore[attr-defined]  # A scheduler looks for its mark.
        self._own = types.MethodType(stepped, optimizer)
        optimizer.step = self._own  # type: ignore[method-assign]

    def remove(self) -> None:
        self._call = None
        if vars(self._optimizer).get("step") is not self._own:
            return  # A scheduler has wrapped it since.
        if self._before is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._before  # type: ignore[method-assign]


class _Rounds:
    """What `LocalSGD` and `DiLoCo` have in common: they differ in the optimizer that the job's shards use."""

    def __init__(
        self,
        session: Session,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        sync_every: int,
        samples_per_step: int,
        keys: dict[str, Any],
    ) -> None:
        self.session = session
        self._optimizer = optimizer
        self._sync_every = sync_every
        self._samples = samples_per_step
        self._done = 0
        self._hook: Any = None
        self._check_job(sync_every, keys)
        if isinstance(optimizer, DistributedOptimizer):
            raise self._error(f"the optimizer is a {type(optimizer).__name__}, which exchanges in each step: give the inner optimizer alone")
        named = trainable(model)
        if not session.joined:
            try:
                session.join(named, averaged_buffers(model))
            except BaseException as failure:
                session.abandon(str(failure))
                raise
        self._parameters = self._in_order(named)
        self._check_optimizer(gradients=False)
        # What the parameters were at the last exchange, in their own type. In float32, the session has it already.
        self._begin: list[torch.Tensor] = []
        self._fragments = Fragments(session, self._parameters, sync_every, samples_per_step) if self._streams() else None

    def _streams(self) -> bool:
        """Whether the job exchanges fragments while training goes on. Their parameters are in float32."""
        job = self.session._job
        if job.fragments == 1 and job.fragment_delay == 0 and job.merge_alpha == 0:
            return False
        for row, parameter in zip(self.session._rows, self._parameters, strict=True):
            if parameter.dtype != torch.float32:
                raise self._error(
                    f"{row[0]} has dtype {parameter.dtype}, and a job with `fragments`, `fragment_delay` or `merge_alpha` needs float32 "
                    "parameters: convert the model, or remove these keys"
                )
        return True

    def _error(self, text: str, code: str = "FAILED_PRECONDITION") -> SluiceError:
        return SluiceError(f"rank {self.session.rank}, {type(self).__name__}: {text}", code=code, rank=self.session.rank)

    def _check_job(self, sync_every: int, keys: dict[str, Any]) -> None:
        job = self.session._job
        wanted = f"sluice.init(local_steps={sync_every}{f', job={keys}' if keys else ''})"
        if job.mode != "local_sgd":
            raise self._error(f"the session's job has `mode: {job.mode}`, in which ranks exchange in each step: make it with {wanted}")
        if min(sync_every, self._samples) < 1:
            raise self._error(f"sync_every is {sync_every} and samples_per_step is {self._samples}: both are at least 1", "INVALID_ARGUMENT")
        if job.local_steps != sync_every and job.merge_weights != "tokens":
            raise self._error(
                f"sync_every is {sync_every}, and the session's job has `local_steps: {job.local_steps}`: give both one number, or, if "
                'ranks differ in speed, make the session with job={"merge_weights": "tokens"}'
            )
        self._check_outer(wanted)

    def _check_outer(self, wanted: str) -> None:
        raise NotImplementedError

    def _in_order(self, named: list[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
        """Returns the model's parameters in the order of the session's table."""
        places: dict[int | None, torch.Tensor] = {}
        for name, parameter in named:
            index = self.session.index_of(parameter)
            if index is None:
                raise self._error(f"the session does not exchange {name}: one session exchanges one model, as it was when it joined")
            places[index] = parameter
        for i, row in enumerate(self.session._rows):
            if i not in places:
                raise self._error(f"the session exchanges {row[0]}, and the model has no such trainable parameter")
        return [places[i] for i in range(len(self.session._rows))]

    def _check_optimizer(self, gradients: bool) -> None:
        """Each parameter that the optimizer changes must be exchanged, or the ranks would drift apart."""
        for i, group in enumerate(self._optimizer.param_groups):
            for k, parameter in enumerate(group["params"]):
                changes = parameter.grad is not None if gradients else parameter.requires_grad
                if changes and self.session.index_of(parameter) is None:
                    raise self._error(
                        f"the optimizer trains parameter {k} of its group {i}, of shape {tuple(parameter.shape)}, which the session does "
                        "not exchange: unfreeze the parameters of the model before the session joins, and train one model"
                    )

    @property
    def local_step(self) -> int:
        """The number of steps since all ranks had the same parameters. With `fragments`, that was when the block began."""
        return self._done if self._fragments is None else self._fragments.steps

    def __enter__(self) -> Any:
        if self._hook is not None:
            raise self._error("the block is entered again before its end")
        for row, parameter, published in zip(self.session._rows, self._parameters, self.session._published, strict=True):
            if not torch.equal(self._laid(published, parameter), parameter.detach()):
                raise self._error(
                    f"{row[0]} has changed since the last exchange, or since the session joined: load parameters before the session "
                    "joins, and take all steps inside the block"
                )
        self._keep_begin()
        if hasattr(self._optimizer, "register_step_post_hook"):
            self._hook = self._optimizer.register_step_post_hook(lambda *_: self._stepped())
        else:
            self._hook = _AfterStep(self._optimizer, self._stepped)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hook.remove()
        self._hook = None
        if error is not None:
            self.session.abandon(_in_a_word(error))
        elif self.local_step > 0:
            self.sync()

    def _stepped(self) -> None:
        if self._fragments is not None:
            self._check_optimizer(gradients=True)
            self._fragments.stepped()
            return
        self._done += 1
        if self._done == self._sync_every:
            self.sync()

    def sync(self) -> None:
        """Exchanges now, before the round is complete, and waits for all ranks. All ranks must call it after the same round.

        A rank that has made no step since the last exchange, because it has no data left, does not count in the mean. In a job
        with a ``quorum``, a rank that was late then takes the results of the rounds that have closed without it.

        Raises:
            SluiceError: Another rank failed, or the optimizer trains a parameter that is not exchanged; the message names it.
        """
        self._check_optimizer(gradients=True)
        if self._fragments is not None:
            self._fragments.close()
            return
        with torch.no_grad():
            self._exchange()
            while self.session._last is not None and self.session._last.steps_behind > 0:
                self._exchange()
        self._keep_begin()

    def _exchange(self) -> None:
        session = self.session
        if self._done == 0:
            session.skip()
        else:
            session.set_work(self._done * self._samples, self._done)
            for i in reversed(range(len(self._parameters))):
                session.submit(i, self._change(i))
        with torch.profiler.record_function("sluice.wait"):
            session.wait()
        with torch.profiler.record_function("sluice.apply"):
            for i, (parameter, published) in enumerate(zip(self._parameters, session._published, strict=True)):
                session.apply_update(i, published)
                parameter.copy_(self._laid(published, parameter))
        self._done = 0
        session.end_step()

    def _change(self, i: int) -> torch.Tensor:
        """Returns how far a parameter went down since the last exchange, in the host's memory."""
        parameter, published = self._parameters[i], self.session._published[i]
        if parameter.dtype == torch.float32:
            return published - parameter.to("cpu").reshape(published.shape)
        return (self._begin[i].to(torch.float64) - parameter.to(torch.float64)).to("cpu", torch.float32)

    def _keep_begin(self) -> None:
        # A narrow type rounds. The rounding is no change, and the session's float32 values keep what it cut off.
        self._begin = [parameter.detach().clone() if parameter.dtype != torch.float32 else parameter for parameter in self._parameters]

    @staticmethod
    def _laid(published: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        return published.reshape(parameter.shape).to(parameter.device, parameter.dtype)


class LocalSGD(_Rounds):
    """A block in which each rank trains on its own, and the ranks average their parameters after every `sync_every` steps.

        session = sluice.init(local_steps=20, job={"outer_optimizer": "average"})
        with sluice.LocalSGD(session, model, optimizer, sync_every=20):
            for batch in loader:
                ...  # zero_grad, backward and optimizer.step, as in one process

    The job's codecs compress the changes of the parameters, with error feedback. After an exchange, all ranks hold the same
    bits. Inside a round they differ: test and save the model after the block, or where `local_step` is 0.

    - A round that is incomplete at the end of the block is exchanged there. All ranks must make equally many exchanges. In a job
      with a ``quorum``, train until ``session.step`` has the number of rounds: a rank that was late skips some of them.
    - If the block raises, this rank abandons the session, and the other ranks end with the reason.
    - The state of the optimizer, such as momentum, stays each rank's own. Buffers are averaged every ``buffer_sync_interval`` exchanges.
    - A step that a loss scaler skips does not count, so all ranks must skip equally many.
    - With ``fragments``, ``fragment_delay`` or ``merge_alpha`` in the job, parts of the model are exchanged in turns while training
      goes on (Douillard et al. 2025, arXiv:2501.18512). Ranks then have equal parameters only after the block, or after `sync`.

    Stich (2018), "Local SGD Converges Fast and Communicates Little", arXiv:1805.09767.

    Args:
        session: A session of ``sluice.init(local_steps=sync_every, job={"outer_optimizer": "average"})``. Its `step` and its
            `figures` count exchanges.
        model: The model. All ranks take rank 0's values of its trainable parameters when the session joins. They may have any
            shape and any floating-point type.
        optimizer: The optimizer of those parameters: any of PyTorch. Its steps count, and not backward passes.
        sync_every: Steps in a round, at least 1: the job's ``local_steps``. With ``merge_weights: tokens`` in the job, a rank
            that is faster may take more of them than others.
        samples_per_step: Samples, or tokens, in each of this rank's steps. Only jobs with ``merge_weights: tokens`` use it.

    Attributes:
        session: The session.

    Raises:
        SluiceError: The job does not fit, or the optimizer trains a parameter that the session does not exchange. Also as
            `Session.join`.
    """

    def __init__(self, session: Session, model: torch.nn.Module, optimizer: torch.optim.Optimizer, sync_every: int, samples_per_step: int = 1) -> None:
        super().__init__(session, model, optimizer, sync_every, samples_per_step, {"outer_optimizer": "average"})

    def _check_outer(self, wanted: str) -> None:
        found = self.session._job.outer_optimizer
        if found != "average":
            raise self._error(f"the session's job has `outer_optimizer: {found}`: make it with {wanted}, or use sluice.DiLoCo")


class DiLoCo(_Rounds):
    """A block in which each rank trains on its own, and an outer optimizer applies the mean change after every `sync_every` steps.

        session = sluice.init(local_steps=20)
        with sluice.DiLoCo(session, model, torch.optim.AdamW(model.parameters()), sync_every=20):
            for batch in loader:
                ...  # zero_grad, backward and optimizer.step, as in one process

    The outer optimizer is SGD with Nesterov momentum. It runs once for all ranks, on the job's shards, with the mean change of
    the parameters as its gradient. With codecs that delay changes, such as ``topk:1%``, use a lower `outer_momentum`: 0.5. All
    else is as in `LocalSGD`.

    Douillard et al. (2023), "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105.

    Args:
        session: A session of ``sluice.init(local_steps=sync_every)``. For another rate or momentum than the default, add
            ``job={"outer_lr": outer_lr, "outer_momentum": outer_momentum}``.
        model: As for `LocalSGD`.
        inner_optimizer: As the optimizer of `LocalSGD`; AdamW in the paper.
        outer_lr: The rate of the outer optimizer: the job's ``outer_lr``.
        outer_momentum: Its momentum, at least 0 and below 1: the job's ``outer_momentum``.
        sync_every, samples_per_step: As for `LocalSGD`.

    Attributes:
        session: The session.

    Raises:
        SluiceError: As for `LocalSGD`.
    """

    def __init__(
        self,
        session: Session,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        *,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        sync_every: int,
        samples_per_step: int = 1,
    ) -> None:
        self._outer = {"outer_lr": outer_lr, "outer_momentum": outer_momentum}
        given = {} if (outer_lr, outer_momentum) == (0.7, 0.9) else self._outer
        super().__init__(session, model, inner_optimizer, sync_every, samples_per_step, given)

    def _check_outer(self, wanted: str) -> None:
        job = self.session._job
        if job.outer_optimizer != "nesterov":
            raise self._error(f"the session's job has `outer_optimizer: {job.outer_optimizer}`: make it with {wanted}, or use sluice.LocalSGD")
        for key, value in self._outer.items():
            found = getattr(job, key)
            if found != value:
                raise self._error(f"{key} is {value:g}, and the session's job has `{key}: {found:g}`: make it with {wanted}")
