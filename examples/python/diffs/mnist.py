# SPDX-License-Identifier: Apache-2.0
"""The shape of PyTorch's examples/mnist/main.py: one process, a train function, a step schedule."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


def main():
    torch.manual_seed(1)
    images = torch.randn(256, 1, 28, 28)
    dataset = TensorDataset(images, (images.mean((1, 2, 3)) > 0).long())
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(288, 10))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(2):
        train(model, loader, optimizer)
        scheduler.step()


if __name__ == "__main__":
    main()
