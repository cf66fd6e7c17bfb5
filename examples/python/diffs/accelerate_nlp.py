# SPDX-License-Identifier: Apache-2.0
"""The shape of Accelerate's examples/nlp_example.py: `prepare` wraps the model, and the Accelerator makes the backward pass."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader


def training_function():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(42)
    sentences = torch.randint(100, (64, 12))
    samples = [{"input_ids": sentence, "labels": sentence[0] % 2} for sentence in sentences]
    train_dataloader = DataLoader(samples, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Embedding(100, 16), nn.Flatten(), nn.Linear(192, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(model, optimizer, train_dataloader, lr_scheduler)
    for epoch in range(2):
        model.train()
        for batch in train_dataloader:
            loss = nn.functional.cross_entropy(model(batch["input_ids"]), batch["labels"])
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        accelerator.print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    training_function()
