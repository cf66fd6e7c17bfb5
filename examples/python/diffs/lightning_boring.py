# SPDX-License-Identifier: Apache-2.0
"""The shape of Lightning's BoringModel: one layer, random numbers, a Trainer."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader


class BoringModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run():
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BoringModel(), DataLoader(torch.randn(64, 32), batch_size=4))
    print(f"{trainer.global_step} steps")


if __name__ == "__main__":
    run()
