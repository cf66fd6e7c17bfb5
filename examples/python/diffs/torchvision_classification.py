# SPDX-License-Identifier: Apache-2.0
"""The shape of torchvision's references/classification/train.py: the schedule exists before DDP wraps a model with BatchNorm."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train_one_epoch(model, criterion, optimizer, loader):
    model.train()
    for image, target in loader:
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(10, (64,)))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    model_without_ddp = model
    model = nn.parallel.DistributedDataParallel(model)
    model_without_ddp = model.module
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader)
        lr_scheduler.step()
    if dist.get_rank() == 0:
        print(f"{sum(p.numel() for p in model_without_ddp.parameters())} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
