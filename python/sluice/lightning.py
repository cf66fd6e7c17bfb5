# SPDX-License-Identifier: Apache-2.0
"""A callback for Lightning (``lightning`` or ``pytorch_lightning``), which only scripts that import this module need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from ._ddp import attach
from ._session import Session
from ._tune import tune_all


def _callback() -> Any:
    """Returns the base class of the package that the script uses: both packages have one."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        names.reverse()
    try:
        return importlib.import_module(names[0]).Callback
    except ModuleNotFoundError:
        return importlib.import_module(names[1]).Callback


_Callback: Any = _callback()


class SluiceCallback(_Callback):  # type: ignore[misc]
    """Lets a ``Trainer`` with ``strategy="ddp"`` exchange its gradients through Sluice.

        trainer = Trainer(strategy="ddp", devices=2, callbacks=[SluiceCallback(uplink="int8")])

    When training starts, it waits for all ranks, lowers momenta as `tune` does, and adapts the rates of the schedulers. It
    logs `Session.scalars` as means over ``log_every_n_steps`` steps, and saves the state of the session in checkpoints. If
    training raises, the other ranks end with the reason. With one process it leaves the model alone.

    Args:
        **options: Those of `sluice.init`.

    Attributes:
        session: The session of the last ``fit``; None before.

    Raises:
        SluiceError: From ``fit``: as `attach`, or the codecs are not those of the checkpoint.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.session: Session | None = None
        self._options = options
        self._state: dict[str, Any] = {}  # The state that training starts with. After training, the last session's state.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        session = self.session = attach(trainer.strategy.model, **self._options)
        if not session.joined:
            return
        tune_all(trainer.optimizers, [config.scheduler for config in trainer.lr_scheduler_configs], session)
        if self._state:
            session.load_state_dict(self._state)
        if trainer.loggers and trainer.log_every_n_steps > 0:

            def write(scalars: Mapping[str, float], step: int) -> None:
                for logger in trainer.loggers:
                    logger.log_metrics(dict(scalars), step=trainer.global_step)

            session.log_to(write, every=trainer.log_every_n_steps)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.session is not None:
            self.session.abandon(f"{type(exception).__name__}: {exception}")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit" and self.session is not None:
            self._state = self.state_dict()
            self.session.close()

    def state_dict(self) -> dict[str, Any]:
        session = self.session
        if session is None or session._core is None or not session.joined:
            return self._state
        # Lightning saves the state of rank 0 alone, and all ranks load it.
        return {key: value for key, value in session.state_dict().items() if key not in ("residual", "compressor")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = dict(state_dict)
