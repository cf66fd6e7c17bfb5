"""Sluice for PyTorch: data-parallel training over slow networks, with compressed gradients.

    model = torch.nn.parallel.DistributedDataParallel(model)
    sluice.attach(model)    # this line is all that changes

``docs/python.md`` explains it.
"""

from __future__ import annotations

from . import compress
from ._ddp import attach, ddp_hook
from ._errors import ForkError, RollbackError, SluiceError
from ._figures import Figures
from ._init import TLS, init
from ._session import LocalSession, Session
from ._tune import tune

__all__ = [
    "TLS",
    "Figures",
    "ForkError",
    "LocalSession",
    "RollbackError",
    "Session",
    "SluiceError",
    "attach",
    "compress",
    "ddp_hook",
    "init",
    "tune",
]
