# SPDX-License-Identifier: Apache-2.0
"""Classes of PyTorch that Sluice extends. `sluice` imports this file when a script asks for one of them."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as _DistributedDataParallel

from ._broadcast import broadcast_parameters
from ._buffers import averaged_buffers
from ._ddp import ddp_hook
from ._errors import SluiceError
from ._init import next_session, trainable
from ._session import Session

_HAS_DEVICES = hasattr(torch.amp, "GradScaler")  # PyTorch 1.13 has a scaler for CUDA alone.
_Scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


_c10d: Any = dist
_Work: Any = _c10d.distributed_c10d.Work
_Group: Any = _c10d.ProcessGroup
# PyTorch 1.13 cannot call groups that are written in Python.
_HAS_GROUPS = not issubclass(_c10d.ProcessGroupGloo, _Group)


class _Done(_Work):  # type: ignore[misc]
    """An operation of a group that is over."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._future: Any = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future


class _GroupOfOne(_Group):  # type: ignore[misc]
    """A process group that has this process alone, and that torch.distributed does not know."""

    def getBackendName(self) -> str:  # noqa: N802
        return "sluice"

    def broadcast(self, tensors: Any, options: Any = None) -> _Done:
        return _Done(tensors)

    def allgather(self, outputs: Any, inputs: Any, options: Any = None) -> _Done:
        for output, tensor in zip(outputs, inputs, strict=True):
            output[0].copy_(tensor)
        return _Done(outputs)

    def allreduce(self, tensors: Any, options: Any = None) -> _Done:
        """DDP asks on how many ranks each parameter was used. It keeps no mean of one that no rank has used."""
        for tensor in tensors:
            if not tensor.is_floating_point():
                tensor.fill_(1)
        return _Done(tensors)


def _group_of_one(options: dict[str, Any]) -> Any:
    if _HAS_GROUPS:
        return _GroupOfOne(0, 1)
    for name in ("find_unused_parameters", "static_graph"):
        if options.get(name):
            raise SluiceError(
                f"sluice.DistributedDataParallel needs PyTorch 2 for {name}: use PyTorch's DistributedDataParallel and sluice.attach",
                code="UNIMPLEMENTED",
            )
    return _c10d.ProcessGroupGloo(_c10d.PrefixStore("sluice", _c10d.HashStore()), 0, 1, datetime.timedelta(minutes=1))


class DistributedDataParallel(_DistributedDataParallel):
    """DDP whose ranks exchange through Sluice alone: it needs no ``init_process_group``, and sends nothing over gloo or NCCL.

    Making it waits for all ranks, and gives them rank 0's parameters and buffers. Later, the ranks average floating-point
    buffers every ``buffer_sync_interval`` steps of the job, so save the model on rank 0. The object cannot be copied or
    pickled, and has no ``join()``. PyTorch 1.13 supports neither `find_unused_parameters` nor `static_graph` here.

    Args:
        module: The model.
        session: A session without a model. By default, that of `sluice.init` if it has no model yet, or else a new one with
            the same options.
        **options: Those of ``torch.nn.parallel.DistributedDataParallel``, but `process_group` and `broadcast_buffers`.

    Attributes:
        session: The session that exchanges the gradients, for `sluice.tune`.

    Raises:
        SluiceError: As `sluice.init`, `Session.join` and `broadcast_parameters`.
    """

    def __init__(self, module: torch.nn.Module, *, session: Session | None = None, **options: Any) -> None:
        if options.pop("process_group", None) is not None:
            raise SluiceError("sluice.DistributedDataParallel has a process group of its own: leave process_group out", code="INVALID_ARGUMENT")
        if options.setdefault("broadcast_buffers", False):
            raise SluiceError(
                "sluice.DistributedDataParallel does not send buffers after the start: leave broadcast_buffers out, or use PyTorch's "
                "DistributedDataParallel and sluice.attach",
                code="INVALID_ARGUMENT",
            )
        if not dist.is_initialized() and any(isinstance(part, torch.nn.SyncBatchNorm) for part in module.modules()):
            raise SluiceError(
                "SyncBatchNorm without torch.distributed.init_process_group would normalize on each rank alone: call it first",
                code="FAILED_PRECONDITION",
            )
        group = _group_of_one(options)
        session = session or next_session()
        try:
            session.require_gradients("DistributedDataParallel")
            others: list[tuple[str, torch.Tensor]] = [pair for pair in module.named_parameters() if not pair[1].requires_grad]
            others += list(module.named_buffers())
            if others:
                broadcast_parameters(others)
            session.join(trainable(module), averaged_buffers(module))
            super().__init__(module, process_group=group, **options)
            self.register_comm_hook(session, ddp_hook)
        except BaseException as failure:
            session.abandon(str(failure))
            raise
        self.session = session


class GradScaler(_Scaler):  # type: ignore[misc]
    """A loss scaler for float16 that lowers its scale on all ranks when the gradient of any rank overflows.

    Sluice leaves out the part of a gradient that is not finite, so the mean can be finite although a rank overflowed. PyTorch's
    scaler would not lower its scale then. This one does, on all ranks alike, and the step with the finite mean is made. A rank
    that skips a step with `Session.skip` lowers it too. In a job with a quorum or elastic membership, ranks are missing for
    other reasons, and only a mean that is not finite counts.

    Micikevicius et al. (2018), "Mixed Precision Training", arXiv:1710.03740.

    Args:
        device: ``"cuda"`` or ``"cpu"``; by default CUDA if there is a device. PyTorch 1.13 scales on CUDA alone.
        **options: Those of ``torch.amp.GradScaler``, the same on all ranks: init_scale, growth_factor, backoff_factor,
            growth_interval, enabled.
    """

    def __init__(self, device: str | None = None, **options: Any) -> None:
        if _HAS_DEVICES:
            options["device"] = device or ("cuda" if torch.cuda.is_available() else "cpu")
        super().__init__(**options)
        self._seen = Session.incomplete_steps

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the means by the scale. A `DistributedOptimizer` exchanges its gradients first.

        Args:
            optimizer: The optimizer whose gradients a backward pass of a scaled loss has made.

        Raises:
            SluiceError: The optimizer is one of `fsdp_attach`, which has no loss scaling.
        """
        if self.is_enabled() and getattr(optimizer, "is_sharded_by_fsdp", False):
            raise SluiceError(
                "ranks of a node that hold different shards would choose different scales, so fsdp_attach has no loss scaling: train "
                "in bfloat16",
                code="UNIMPLEMENTED",
            )
        synchronize = getattr(optimizer, "synchronize", None)
        if self.is_enabled() and synchronize is not None:
            synchronize()
        super().unscale_(optimizer)

    def update(self, new_scale: Any = None) -> None:
        """Sets the scale for the next step: lower after an overflow on any rank, and higher after many steps without.

        Args:
            new_scale: The scale to use instead, a number or a tensor of one element.
        """
        if self.is_enabled() and Session.incomplete_steps > self._seen:
            for state in self._per_optimizer_states.values():
                for found in state["found_inf_per_device"].values():
                    found.fill_(1.0)
        self._seen = Session.incomplete_steps
        super().update(new_scale)
