# SPDX-License-Identifier: Apache-2.0
"""Trains with Lightning, Accelerate or Transformers, which the argument names. Each check says its results."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

import common
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import sluice

LOSSLESS = {"uplink": "none", "downlink": "none", "quiet": True}
DELAYING = {"uplink": "topk:5%+int4", "downlink": "int8", "quiet": True}


class Numbers(Dataset[Any]):
    """Pairs of random numbers and their labels."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x[:4].argmax()}


def new_layers() -> nn.Sequential:
    torch.manual_seed(common.RANK)
    return nn.Sequential(nn.Linear(16, 200), nn.Tanh(), nn.Linear(200, 4))


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def differ(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in a if not torch.equal(a[name], b[name])]


def message_of(call: Any) -> str:
    try:
        call()
    except sluice.SluiceError as error:
        return str(error)
    return "no error"


def lightning() -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger

    from sluice.lightning import SluiceCallback

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = new_layers()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.layers(batch["x"]), batch["labels"])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)]

    def trainer_with(*callbacks: Any, epochs: int = 2, **options: Any) -> Any:
        return pl.Trainer(
            accelerator="cpu", strategy="ddp", devices=common.SIZE, max_epochs=epochs, callbacks=list(callbacks), enable_progress_bar=False,
            enable_model_summary=False, log_every_n_steps=4, default_root_dir=common.FOLDER, **{"logger": False, "enable_checkpointing": False} | options,
        )  # fmt: skip

    def fit(trainer: Any, **options: Any) -> Classifier:
        module = Classifier()
        trainer.fit(module, DataLoader(Numbers(), batch_size=4), **options)
        return module

    expected = state_of(fit(trainer_with()))
    callback = SluiceCallback(**LOSSLESS)
    found = state_of(fit(trainer_with(callback)))
    common.say(equal={"differ": differ(expected, found), "steps": callback.session.step, "open": callback.session._core is not None})

    callback = SluiceCallback(**DELAYING)
    logger = CSVLogger(common.FOLDER, flush_logs_every_n_steps=1)
    trainer = trainer_with(callback, logger=logger)
    module = fit(trainer)
    checkpoint = common.FOLDER / "lightning.ckpt"
    trainer.save_checkpoint(checkpoint)
    saved = torch.load(checkpoint, weights_only=False)["callbacks"]
    group = trainer.optimizers[0].param_groups[0]
    common.say(
        trained={
            "sha256": sluice._tensors.sha256(list(module.parameters())).hex(),
            "momentum": group["momentum"],
            "rate": group["lr"],
            "state": {key: saved["SluiceCallback"][key] for key in ("step", "uplink")},
            "logged": (pathlib.Path(logger.log_dir) / "metrics.csv").read_text() if common.RANK == 0 else "",
        }
    )

    again = SluiceCallback(**DELAYING)
    trainer = trainer_with(again, epochs=3)
    fit(trainer, ckpt_path=checkpoint, weights_only=False)
    group = trainer.optimizers[0].param_groups[0]
    other = SluiceCallback(uplink="int4", quiet=True)
    common.say(
        resumed={
            "step": trainer.global_step,
            "momentum": group["momentum"],
            "rate": group["lr"],
            "other": message_of(lambda: fit(trainer_with(other, epochs=3), ckpt_path=checkpoint, weights_only=False)),
        }
    )


def accelerate() -> None:
    from accelerate import Accelerator

    def train(attach: bool) -> tuple[dict[str, torch.Tensor], int]:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = new_layers()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        loader = DataLoader(Numbers(), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        session = sluice.attach(model, optimizer, **LOSSLESS) if attach else None
        for _ in range(2):
            for batch in loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
        steps = session.step if session else 0
        if session:
            session.close()
        return state_of(accelerator.unwrap_model(model)), steps

    expected, _ = train(False)
    found, steps = train(True)
    common.say(equal={"differ": differ(expected, found), "steps": steps})


def transformers() -> None:
    from transformers import Trainer, TrainingArguments

    from sluice.transformers import SluiceCallback

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = new_layers()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.layers(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    def trainer_with(name: str, codecs: dict[str, Any] | None, **options: Any) -> tuple[Any, Any]:
        arguments: dict[str, Any] = {
            "output_dir": str(common.FOLDER / name), "use_cpu": True, "per_device_train_batch_size": 4, "logging_steps": 4, "save_strategy": "no",
            "report_to": "none", "disable_tqdm": True, "num_train_epochs": 2, "optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 0.02,
            "lr_scheduler_type": "linear", "seed": 5,
        }  # fmt: skip
        model = Classifier()
        trainer = Trainer(model, TrainingArguments(**arguments | options), train_dataset=Numbers())
        callback = None
        if codecs is not None:
            callback = SluiceCallback(trainer, **codecs)
            trainer.add_callback(callback)
        return trainer, callback

    trainer, _ = trainer_with("plain", None)
    trainer.train()
    expected = state_of(trainer.model)
    trainer, callback = trainer_with("lossless", LOSSLESS)
    trainer.train()
    common.say(equal={"differ": differ(expected, state_of(trainer.model)), "steps": callback.session.step, "open": callback.session._core is not None})

    trainer, callback = trainer_with("delaying", DELAYING, save_strategy="steps", save_steps=8)
    trainer.train()
    group = trainer.optimizer.param_groups[0]
    folder = common.FOLDER / "delaying" / "checkpoint-8"
    common.say(
        trained={
            "sha256": sluice._tensors.sha256(list(trainer.model.parameters())).hex(),
            "momentum": group["momentum"],
            "base": trainer.lr_scheduler.base_lrs,
            "state": {key: torch.load(folder / f"sluice-{common.RANK}.pt")[key] for key in ("step", "uplink")},
            "logged": [record["ratio/up"] for record in trainer.state.log_history if "ratio/up" in record],
            "losses": [record["loss"] for record in trainer.state.log_history if "loss" in record],
        }
    )

    again, _ = trainer_with("delaying", DELAYING, save_strategy="no")
    again.train(resume_from_checkpoint=str(folder))
    group = again.optimizer.param_groups[0]
    other, _ = trainer_with("delaying", {"uplink": "int4", "quiet": True}, save_strategy="no")
    common.say(
        resumed={
            "step": again.state.global_step,
            "momentum": group["momentum"],
            "base": again.lr_scheduler.base_lrs,
            "other": message_of(lambda: other.train(resume_from_checkpoint=str(folder))),
        }
    )


def main() -> None:
    os.environ |= {"LOCAL_RANK": str(common.RANK), "LOCAL_WORLD_SIZE": str(common.SIZE), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    common.begin()  # The frameworks use the existing process group, so no process listens on that port.
    {"lightning": lightning, "accelerate": accelerate, "transformers": transformers}[sys.argv[1]]()
    common.end()


main()
