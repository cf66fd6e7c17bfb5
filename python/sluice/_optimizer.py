# SPDX-License-Identifier: Apache-2.0
"""An optimizer that exchanges gradients before each of its steps, for scripts without DistributedDataParallel."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from typing import Any

import torch

from ._ddp import take_means
from ._errors import SluiceError
from ._init import next_session
from ._session import Session
from ._tune import tune

_AFTER_ACCUMULATION = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


class _Exchange:
    """The gradients of one optimizer between two exchanges."""

    def __init__(self, session: Session, names: dict[int, str], parameters: list[torch.Tensor], passes: int) -> None:
        self.session = session
        self.complete = False  # The gradients are means: nothing has come since the last exchange.
        self._names = names  # Maps the id of each parameter of the optimizer to its name.
        self._parameters = parameters  # In the order of the session's table.
        self._known = {id(parameter) for parameter in parameters}
        self._passes = passes
        self._backwards = [0] * len(parameters)
        self._submitted: dict[int, tuple[torch.Tensor, int]] = {}  # Gradients and the versions that were handed over.
        self._lock = threading.Lock()  # Autograd has a thread for each GPU.
        for i, parameter in enumerate(parameters):
            self._watch(i, parameter)

    def _watch(self, i: int, parameter: torch.Tensor) -> None:
        # The parameter outlives the optimizer, and must not keep it.
        own = weakref.ref(self)

        def after(_: torch.Tensor) -> None:
            exchange = own()
            if exchange is not None and exchange.session._core is not None:  # A closed session takes no gradients.
                exchange.backward_came(i)

        # PyTorch 1.13: the hook comes before the gradient, so `exchange` hands it over.
        register: Any = parameter.register_post_accumulate_grad_hook if _AFTER_ACCUMULATION else parameter.register_hook
        register(after)

    def _error(self, text: str) -> SluiceError:
        rank, step = self.session.rank, self.session.step + 1
        return SluiceError(f"rank {rank}, step {step}: {text}", code="FAILED_PRECONDITION", rank=rank, step=step)

    def backward_came(self, i: int) -> None:
        parameter = self._parameters[i]
        with self._lock:
            self.complete = False
            self._backwards[i] += 1
            if self._backwards[i] > self._passes:
                raise self._error(
                    f"{self._names[id(parameter)]} got the gradients of {self._backwards[i]} backward passes since the last step, "
                    f"wanted {self._passes}: set backward_passes_per_step, or freeze the model (requires_grad_(False)) while "
                    "another one is trained through it"
                )
            if self._backwards[i] == self._passes and _AFTER_ACCUMULATION:
                self._submit(i, parameter.grad)

    def _submit(self, i: int, gradient: torch.Tensor | None) -> None:
        if gradient is None:
            gradient = torch.zeros_like(self._parameters[i])
        self.session.submit(i, gradient.detach())
        self._submitted[i] = (gradient, gradient._version)

    @property
    def has_gradients(self) -> bool:
        """Whether a backward pass has come since the last exchange."""
        return any(self._backwards)

    def exchange(self, groups: list[dict[str, Any]]) -> None:
        """Replaces the gradients by their means over all ranks. Waits for all ranks."""
        if self.complete:
            return
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) not in self._known:
                    raise self._error(
                        f"{self._names.get(id(parameter), 'a parameter of a new group')} was not trainable when the "
                        "DistributedOptimizer was made, so no other rank gets its gradient: make it after all parameters are unfrozen"
                    )
        for i in reversed(range(len(self._parameters))):
            parameter = self._parameters[i]
            if i not in self._submitted:
                self._submit(i, parameter.grad)
                continue
            gradient, version = self._submitted[i]
            if parameter.grad is not gradient or gradient._version != version:
                raise self._error(
                    f"the gradient of {self._names[id(parameter)]} changed between the backward pass and the exchange: call "
                    "synchronize() first (to clip gradients, for example)"
                )
        take_means(self.session, self._parameters)
        self._submitted.clear()
        self._backwards = [0] * len(self._parameters)
        self.complete = True
        self.session.end_step()


def _name_all(optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.Tensor]] | None) -> list[tuple[str, torch.Tensor]]:
    """Returns the optimizer's parameters with their names, in the order of `named`."""
    groups = [list(group["params"]) for group in optimizer.param_groups]
    if named is None:
        return [(f"group{i}.p{k}", parameter) for i, group in enumerate(groups) for k, parameter in enumerate(group)]
    own = {id(parameter): (i, k) for i, group in enumerate(groups) for k, parameter in enumerate(group)}
    found: dict[int, tuple[str, torch.Tensor]] = {}
    names: set[str] = set()
    for pair in named:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], torch.Tensor)):
            raise SluiceError(
                f"named_parameters contains a {type(pair).__name__}, wanted pairs of a name and a tensor: give model.named_parameters()",
                code="INVALID_ARGUMENT",
            )
        name, parameter = pair
        if name in names:
            raise SluiceError(f"named_parameters has {name} more than once: each parameter needs a name of its own", code="INVALID_ARGUMENT")
        names.add(name)
        if id(parameter) in own:
            found.setdefault(id(parameter), (name, parameter))  # A tied parameter keeps its first name.
    missing = [place for key, place in own.items() if key not in found]
    if missing:
        i, k = missing[0]
        raise SluiceError(
            f"named_parameters lacks {len(missing)} of the optimizer's parameters; the first is parameter {k} of group {i}, of shape "
            f"{tuple(groups[i][k].shape)}",
            code="INVALID_ARGUMENT",
        )
    return list(found.values())


def _join(session: Session, trained: list[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Joins, unless the session has joined with these parameters. Returns them in the order of the session's table."""
    session.require_gradients("DistributedOptimizer")
    if not session.joined:
        session.join(trained)
        return [parameter for _, parameter in trained]
    places = {session.index_of(parameter): parameter for _, parameter in trained}
    for name, parameter in trained:
        if session.index_of(parameter) is None:
            raise SluiceError(f"the session exchanges another model, without {name}: one session exchanges one model", code="FAILED_PRECONDITION")
    for i, row in enumerate(session._rows):
        if i not in places:
            raise SluiceError(f"the session exchanges {row[0]}, and the optimizer does not train it", code="FAILED_PRECONDITION")
    return [places[i] for i in range(len(session._rows))]


def _new(kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return kind.__new__(kind)


class DistributedOptimizer(torch.optim.Optimizer):
    """An optimizer whose steps use the means of all ranks' gradients. It needs neither DDP nor a process group.

        sluice.init()
        optimizer = sluice.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())

    The result is also an instance of the inner optimizer's class, and shares its groups, state and ``state_dict``. Making it
    waits for all ranks and lowers the momentum as `tune` does: make it before a learning-rate scheduler. If the session has
    not joined yet, all ranks take rank 0's values of the trained parameters; `broadcast_parameters` also copies frozen ones
    and buffers. Gradients leave during the last backward pass before a step (PyTorch 1.13: at the step).

    - A parameter without a gradient counts as zeros, and gets the mean. One that is frozen before is not exchanged.
    - Gradients of several backward passes add up, as without Sluice.
    - ``step(closure)`` exchanges after each call of the closure. An optimizer that decides by the loss, such as LBFGS, needs
      a closure that returns the same loss on all ranks.
    - A copy of it, by ``copy`` or ``pickle``, is an inner optimizer that takes no part in the job.

    Its interface is that of Horovod: Sergeev and Del Balso (2018), arXiv:1802.05799.

    Args:
        optimizer: Any optimizer of PyTorch.
        named_parameters: Names for messages, such as ``model.named_parameters()``; they must cover the optimizer's parameters.
        session: A session without a model, or with these parameters. By default, that of `sluice.init` if it has no model
            yet, or else a new one with the same options.
        backward_passes_per_step: Backward passes that reach each parameter between two steps.

    Raises:
        SluiceError: A name is missing or there twice, or as `sluice.init` and `Session.join`.
    """

    _inner: type[torch.optim.Optimizer]
    _exchange: _Exchange

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> DistributedOptimizer:  # noqa: D102
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, DistributedOptimizer):
            raise SluiceError(f"DistributedOptimizer takes an optimizer of PyTorch, and not a {type(optimizer).__name__}", code="INVALID_ARGUMENT")
        kind = type(f"Distributed{type(optimizer).__name__}", (cls, type(optimizer)), {"__module__": __name__, "_inner": type(optimizer)})
        own: DistributedOptimizer = object.__new__(kind)
        return own

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
        *,
        session: Session | None = None,
        backward_passes_per_step: int = 1,
    ) -> None:
        if backward_passes_per_step < 1:
            raise SluiceError(f"backward_passes_per_step is {backward_passes_per_step}, and must be at least 1", code="INVALID_ARGUMENT")
        if "step" in vars(optimizer):
            raise SluiceError(
                "a learning-rate scheduler or another library has wrapped the optimizer's step already: make the DistributedOptimizer first",
                code="FAILED_PRECONDITION",
            )
        named = _name_all(optimizer, named_parameters)
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        if not trained:
            raise SluiceError("the optimizer has no trainable parameters: requires_grad is False for all", code="INVALID_ARGUMENT")
        session = session or next_session()
        try:
            parameters = _join(session, trained)
        except BaseException as failure:
            session.abandon(str(failure))
            raise
        # Both optimizers share one state, so a script may change either of them.
        self.__dict__ = optimizer.__dict__
        optimizer.__class__ = type(self)  # A step of the inner one, or a scheduler for it, must exchange too.
        self._exchange = _Exchange(session, {id(parameter): name for name, parameter in named}, parameters, backward_passes_per_step)
        tune(self, session)

    @property
    def session(self) -> Session:
        """The session that exchanges the gradients."""
        return self._exchange.session

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # A loss scaler asks this first in its step, and then looks at the gradients: they must be the means.
        if self._exchange.has_gradients:
            self.synchronize()
        return bool(vars(self).get("_step_supports_amp_scaling", False))

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        vars(self)["_step_supports_amp_scaling"] = value

    def synchronize(self) -> None:
        """Replaces the gradients by their means over all ranks, to clip them, for example. The next `step` then does not.

        Raises:
            SluiceError: Another rank failed, or a gradient changed after its backward pass; the message names it.
        """
        self._exchange.exchange(self.param_groups)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Generator[None, None, None]:
        """Returns a block in which `step` exchanges nothing, as Horovod has it. It needs `synchronize` first.

        Raises:
            SluiceError: The gradients are not synchronized.
        """
        if not self._exchange.complete:
            raise self._exchange._error("skip_synchronize() without synchronize() would leave each rank with its own gradients")
        yield

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Exchanges the gradients, unless `synchronize` has done it, and steps.

        Args:
            closure: A function that computes the loss again, with its gradients, as the inner optimizer takes it.
            **options: Those of the inner optimizer's ``step``.

        Returns:
            The inner optimizer's result.
        """
        if closure is None:
            self.synchronize()
            result = super().step(**options)
        else:

            @functools.wraps(closure)
            def exchanged() -> Any:
                loss = closure()
                self.synchronize()
                return loss

            result = super().step(exchanged, **options)
        self._exchange.complete = False
        return result

    # PyTorch calls the step hooks in the inner optimizer's step, and must not wrap this one.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients.

        Args:
            set_to_none: Whether gradients become None. Else they become zeros.

        Raises:
            SluiceError: A backward pass has been made since the last step, and its gradients are on their way.
        """
        if self._exchange.has_gradients:
            raise self._exchange._error(
                "zero_grad() was called between a backward pass and step(): the gradients are on their way to the other ranks. "
                "Call it before the backward pass, or after step() or synchronize()"
            )
        super().zero_grad(set_to_none=set_to_none)
        self._exchange.complete = False  # The means are gone.

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _new, (self._inner,), self.__getstate__()
