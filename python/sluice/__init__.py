# SPDX-License-Identifier: Apache-2.0
"""Sluice for PyTorch: data-parallel training over slow networks, with compressed gradients.

    model = torch.nn.parallel.DistributedDataParallel(model)
    sluice.attach(model)    # this line is all that changes

``docs/python.md`` explains it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import compress
from ._broadcast import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ._ddp import attach, ddp_hook
from ._errors import ForkError, RollbackError, SluiceError
from ._figures import Figures
from ._follow import FollowedVersion, Follower, follow
from ._forecast import Forecast
from ._guard import AccuracyGuard
from ._init import TLS, init
from ._launch import launch
from ._ranks import is_initialized, local_rank, rank, shutdown, size
from ._session import LocalSession, Session
from ._tune import tune

if TYPE_CHECKING:
    from ._fsdp import fsdp_attach
    from ._local import DiLoCo, LocalSGD
    from ._optimizer import DistributedOptimizer
    from ._torch import DistributedDataParallel, GradScaler

__all__ = [
    "TLS",
    "AccuracyGuard",
    "DiLoCo",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "Figures",
    "FollowedVersion",
    "Follower",
    "Forecast",
    "ForkError",
    "GradScaler",
    "LocalSGD",
    "LocalSession",
    "RollbackError",
    "Session",
    "SluiceError",
    "attach",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "compress",
    "ddp_hook",
    "follow",
    "fsdp_attach",
    "init",
    "is_initialized",
    "launch",
    "local_rank",
    "rank",
    "shutdown",
    "size",
    "tune",
]

# They extend classes of PyTorch, which `sluice.compress` does not need.
_WITH_TORCH = {
    "DiLoCo": "._local",
    "DistributedDataParallel": "._torch",
    "DistributedOptimizer": "._optimizer",
    "GradScaler": "._torch",
    "LocalSGD": "._local",
    "fsdp_attach": "._fsdp",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'sluice' has no attribute {name!r}")
    return getattr(importlib.import_module(_WITH_TORCH[name], __name__), name)
