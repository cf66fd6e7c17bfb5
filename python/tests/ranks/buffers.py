# SPDX-License-Identifier: Apache-2.0
"""Trains models with BatchNorm. Each way of training says how far its statistics are from those of one process that averages."""

from __future__ import annotations

import copy
from typing import Any

import common
import torch
from torch import nn

import sluice
from sluice._tensors import sha256

INTERVAL, STEPS = 3, 4
JOB: dict[str, Any] = {"buffer_sync_interval": INTERVAL}


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * rank + step))


def expected() -> list[nn.Module]:
    """Returns this rank's BatchNorm after each step. Its statistics depend on the data alone."""
    norms: list[nn.Module] = [nn.BatchNorm1d(4) for _ in range(common.SIZE)]
    found = []
    for step in range(1, STEPS + 1):
        for rank, norm in enumerate(norms):
            norm(batch(rank, step))
        for name in ("running_mean", "running_var") if step == INTERVAL else ():
            mean = torch.stack([getattr(norm, name) for norm in norms]).mean(dim=0)
            for norm in norms:
                getattr(norm, name).copy_(mean)
        found.append(copy.deepcopy(norms[common.RANK]))
    return found


def train(kind: str) -> None:
    torch.manual_seed(common.RANK)
    model: Any = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    if common.RANK == 1:
        model[0].running_mean.fill_(7.0)  # Rank 0's values count.
    norm = model[0]
    session = sluice.init(None if kind == "ddp" else model, job=JOB, quiet=True)
    if kind == "ddp":
        model = sluice.DistributedDataParallel(model, session=session)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "optimizer":
        optimizer = sluice.DistributedOptimizer(optimizer, session=session)
    far, hashes = [], []
    for step, wanted in enumerate(expected(), start=1):
        optimizer.zero_grad()
        model(batch(common.RANK, step)).square().mean().backward()
        optimizer.step()
        pairs = zip(norm.buffers(), wanted.buffers(), strict=True)
        far.append(max(float((own.double() - other.double()).abs().max()) for own, other in pairs))
        hashes.append(sha256(list(norm.buffers())).hex())
    common.say(**{kind: {"far": far, "hashes": hashes}})
    session.close()


def main() -> None:
    common.begin_without_group()
    train("ddp")
    train("optimizer")


main()
