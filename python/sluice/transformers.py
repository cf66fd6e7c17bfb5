# SPDX-License-Identifier: Apache-2.0
"""A callback for the Trainer of Hugging Face Transformers, which only scripts that import this module need."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

from ._ddp import attach
from ._figures import Figures, scalars_of
from ._init import warn
from ._session import Session
from ._state import belongs_to
from ._tune import tune_all

_Callback: Any = importlib.import_module("transformers").TrainerCallback


class SluiceCallback(_Callback):  # type: ignore[misc]
    """Lets a ``Trainer`` whose ranks ``torchrun`` or ``accelerate launch`` starts exchange its gradients through Sluice.

        trainer = Trainer(model, args, train_dataset=data)
        trainer.add_callback(SluiceCallback(trainer, uplink="int8"))

    When training starts, it waits for all ranks, lowers momenta as `tune` does, and adapts the rates of the schedulers. With
    the Trainer's own figures it logs `Session.scalars`, as means since the last time. Each rank saves the state of its session
    in the folder of the checkpoint, as ``sluice-RANK.pt``. With one process it leaves the model alone.

    Args:
        trainer: The Trainer to which the callback is added. It has the model that ``DistributedDataParallel`` wraps.
        **options: Those of `sluice.init`.

    Attributes:
        session: The session of the last ``train``; None before.

    Raises:
        SluiceError: From ``train``: as `attach`, or the codecs are not those of the checkpoint.
    """

    def __init__(self, trainer: Any, **options: Any) -> None:
        self.session: Session | None = None
        self._trainer = trainer
        self._options = options
        self._logged: list[Figures] = []  # The figures that were logged last.

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        session = self.session = attach(self._trainer.model_wrapped, **self._options)
        if not session.joined:
            return
        tune_all([self._trainer.optimizer], [self._trainer.lr_scheduler], session)
        if state.global_step > 0:
            self._load(self._file(args, state))
        self._logged = [session.figures()]

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        session = self.session
        if "loss" in logs and session is not None and session.joined:
            now = session.figures()
            self._trainer.log(scalars_of(now, self._logged[0]))
            self._logged = [now]

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        import torch

        if self.session is not None and self.session.joined:
            file = self._file(args, state)
            file.parent.mkdir(parents=True, exist_ok=True)  # Rank 0 may not have made it yet.
            torch.save(self.session.state_dict(), file)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.session is not None:
            self.session.close()

    def _file(self, args: Any, state: Any) -> pathlib.Path:
        session = self.session
        assert session is not None
        return pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / f"sluice-{session.rank}.pt"

    def _load(self, file: pathlib.Path) -> None:
        import torch

        session = self.session
        assert session is not None
        loaded = torch.load(file, weights_only=True) if file.exists() else None
        if loaded is not None and belongs_to(loaded, session.rank, session.world_size):
            session.load_state_dict(loaded)
        else:
            found = f"{file} is of {loaded['world_size']} ranks" if loaded else f"the checkpoint has no {file}"
            warn(f"rank {session.rank} of {session.world_size}: {found}, so the session starts without saved state")
