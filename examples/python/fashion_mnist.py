# SPDX-License-Identifier: Apache-2.0
"""Trains a CNN on Fashion-MNIST with DistributedDataParallel. The lines marked `# +` let Sluice exchange the gradients.

    torchrun --nproc-per-node 2 examples/python/fashion_mnist.py

Debian's package dataset-fashion-mnist contains the images.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import sluice  # +

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read_idx(file: pathlib.Path) -> torch.Tensor:
    """Returns the array of a file in the IDX format, which begins with its number of dimensions and their sizes."""
    data = gzip.decompress(file.read_bytes())
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())


def read_part(folder: pathlib.Path, part: str) -> TensorDataset:
    """Returns images of 1 x 28 x 28 numbers around 0, and their classes. `part` is train or t10k."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").float().div_(255).sub_(0.286).div_(0.353)
    return TensorDataset(images.unsqueeze(1), read_idx(folder / f"{part}-labels-idx1-ubyte.gz").long())


def new_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(model: nn.Module, optimizer: torch.optim.Optimizer, data: TensorDataset, steps: int) -> None:
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=optimizer.param_groups[0]["lr"], total_steps=steps, cycle_momentum=False)
    step = 0
    while step < steps:
        sampler.set_epoch(step)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            scheduler.step()
            step += 1
            if dist.get_rank() == 0 and (step % 20 == 0 or step == 1):
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
            if step == steps:
                break


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in images.chunk(20)])
    return float((found == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=470, help="one epoch of two ranks has 468 (default: %(default)s)")
    parser.add_argument("--data", type=pathlib.Path, default=FOLDER, help="folder with the four files (default: %(default)s)")
    parser.add_argument("--uplink", default="topk:1%+int4", help="codec of gradients (default: %(default)s)")
    parser.add_argument("--downlink", default="topk:3%+int4", help="codec of means (default: %(default)s)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(new_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    session = sluice.attach(model, optimizer, uplink=options.uplink, downlink=options.downlink)  # +
    train(model, optimizer, read_part(options.data, "train"), options.steps)
    if dist.get_rank() == 0:
        print(f"test accuracy {100 * accuracy(model.module, read_part(options.data, 't10k')):.1f} %")
        figures = session.figures()  # +
        print(f"bytes of a rank: {figures.bytes_up} up, {figures.bytes_down} down, {figures.dense_bytes} without Sluice")  # +
    session.close()  # +
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
