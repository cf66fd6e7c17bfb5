# SPDX-License-Identifier: Apache-2.0
"""The hook for torch.nn.parallel.DistributedDataParallel."""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._buffers import averaged_buffers
from ._errors import SluiceError
from ._init import init, trainable, warn
from ._session import Session
from ._tensors import local_part
from ._tune import tune

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import GradBucket


_attached: weakref.WeakSet[Session] = weakref.WeakSet()


def ddp_hook(state: Session, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook for DDP: ``model.register_comm_hook(session, sluice.ddp_hook)``.

    It hands over the gradients of each bucket, parameter by parameter, and waits in the last bucket of the backward pass.
    Then the buckets hold the means over all ranks, as DDP's own would.

    Args:
        state: A session. If it has not joined, the last bucket of the first backward pass joins, and the parameters are
            named ``p0``, ``p1``, ... in the order in which DDP has them.
        bucket: What DDP passes.

    Returns:
        A future of the bucket's buffer, which then holds the means.

    Raises:
        SluiceError: Another rank failed, or a gradient is sparse or of a parameter that was frozen; the message names it.
    """
    import torch

    device = bucket.buffer().device
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=[] if device.type == "cpu" else [device])
    state._pending.append((bucket, future))
    if not state.joined:
        if not bucket.is_last():
            return future
        _join_in_order_of(state)
        for earlier, _ in state._pending:
            _submit(state, earlier)
    else:
        _submit(state, bucket)
    if bucket.is_last():
        _finish(state)
    return future


# DDP compares annotations with its own classes, and takes no strings for them.
ddp_hook.__annotations__.clear()


def _join_in_order_of(session: Session) -> None:
    """Joins with the parameters of all buckets. The first bucket has the last parameters, which the table has last."""
    parameters: list[torch.Tensor] = []
    for bucket, _ in session._pending:
        parameters.extend(bucket.parameters())
    parameters.reverse()
    session.join([(f"p{i}", parameter) for i, parameter in enumerate(parameters)])


def _submit(session: Session, bucket: GradBucket) -> None:
    buffer = bucket.buffer()
    if buffer.is_sparse:
        _refuse_sparse(session, bucket)
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        session.submit(_index(session, parameter), gradient)


def _index(session: Session, parameter: torch.Tensor) -> int:
    index = session.index_of(parameter)
    if index is None:
        raise _error(
            session,
            "FAILED_PRECONDITION",
            f"a parameter of shape {tuple(parameter.shape)} was not trainable when the session was attached, so no other rank gets "
            "its gradient: attach after all parameters are unfrozen",
        )
    return index


def _refuse_sparse(session: Session, bucket: GradBucket) -> None:
    names = [session._rows[_index(session, parameter)][0] for parameter in bucket.parameters()]
    raise _error(
        session,
        "INVALID_ARGUMENT",
        f"the gradient of {', '.join(names)} is sparse, and only dense ones can be exchanged: make the layer's gradient dense "
        "(embeddings: sparse=False)",
    )


def _error(session: Session, code: str, text: str) -> SluiceError:
    """The error of the step that is open."""
    step = session.step + 1
    return SluiceError(f"rank {session.rank}, step {step}: {text}", code=code, rank=session.rank, step=step)


def _finish(session: Session) -> None:
    import torch

    pending = session._pending
    session._pending = []
    means = {
        _index(session, parameter): gradient.detach()
        for bucket, _ in pending
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
    }
    with torch.profiler.record_function("sluice.wait"):
        session.wait(means)
    for bucket, future in pending:
        future.set_result(bucket.buffer())
    session.end_step()


def take_means(session: Session, parameters: Iterable[torch.Tensor]) -> None:
    """Waits for the exchange and replaces gradients by their means. `parameters` are in the order of the session's table."""
    import torch

    with torch.profiler.record_function("sluice.wait"):
        session.wait({tensor: mean.detach() for tensor, mean in _targets(parameters)})


def _targets(parameters: Iterable[torch.Tensor]) -> Iterator[tuple[int, torch.Tensor]]:
    import torch

    for i, parameter in enumerate(parameters):
        if parameter.grad is None and parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is not None:
            yield i, local_part(parameter.grad)


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    session: Session | None = None,
    **options: Any,
) -> Session:
    """Lets a DistributedDataParallel model exchange its gradients through Sluice. Waits for all ranks.

    Args:
        model: What ``DistributedDataParallel(...)`` returned, or a wrapper of ``torch.compile`` around it.
        optimizer: The model's optimizer, for `tune`.
        session: A session of `sluice.init` that has not joined; by default a new one.
        **options: Those of `sluice.init`, for a new session.

    Returns:
        The session. It closes at the end of the process, or with ``session.close()``.

    Raises:
        SluiceError: `model` is no DistributedDataParallel and there are other ranks, or as `sluice.init`.
    """
    from torch.nn.parallel import DistributedDataParallel

    wrapped = getattr(model, "_orig_mod", model)
    session = session or init(**options)
    try:
        if isinstance(wrapped, DistributedDataParallel):
            session.require_gradients("attach")
            session.join(trainable(wrapped.module), [] if wrapped.broadcast_buffers else averaged_buffers(wrapped.module))
            wrapped.register_comm_hook(session, ddp_hook)
            _attached.add(session)
        elif session.world_size == 1:
            warn(f"{type(model).__name__} is not wrapped in DistributedDataParallel and this process is alone: it stays as it is")
            return session
        else:
            raise SluiceError(
                f"the model is a {type(model).__name__}, and its gradients would stay on this rank: wrap it in "
                "torch.nn.parallel.DistributedDataParallel first",
                code="INVALID_ARGUMENT",
                rank=session.rank,
            )
    except BaseException as failure:
        session.abandon(str(failure))
        raise
    if optimizer is not None:
        tune(optimizer, session)
    return session


def _warn_of_silence() -> None:
    """Ranks whose DDP never calls its hook train alone, and would not notice."""
    if getattr(sys, "last_value", None) is None and any(session.step == 0 for session in _attached):
        warn(
            "DDP never called Sluice's hook, so this rank exchanged no gradient. If it has trained: call the wrapped model and not "
            "model.module, leave no_sync() for the last backward pass, and do not use compiled autograd (sluice.DistributedOptimizer works with it)"
        )


atexit.register(_warn_of_silence)
