# SPDX-License-Identifier: Apache-2.0
"""Trains until something goes wrong, as the first argument says. Each rank says when it is in a step."""

from __future__ import annotations

import os
import sys
import time

import common
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.table(x.long().abs() % 50).mean(dim=1))


def outlive() -> None:
    """Forks a process that is still there when this one has been killed, as a worker of a DataLoader may be."""
    child = os.fork()
    if child == 0:
        while not (common.FOLDER / "end").exists():
            time.sleep(0.02)
        os._exit(0)
    common.say(child=child)


def overflow(model: DistributedDataParallel, session: sluice.Session) -> None:
    """A step that overflows on all ranks: a loss scaler must see it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        before = model.module.weight.detach().clone()
        scaler.scale(model(torch.randn(4, 20)).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        common.say(**{"moved": not torch.equal(before, model.module.weight), "scale": scaler.get_scale()})
    session.compare_parameters(list(model.parameters()))
    session.close()
    common.say(done=True)


def main() -> None:
    fault = sys.argv[1]
    common.begin()
    torch.manual_seed(1)
    model = DistributedDataParallel(Bag() if fault == "sparse" else nn.Linear(20, 300))
    # Where rank 0 is lost, its shard ends by itself, and not because a lease is over.
    lease = "3s" if fault == "lease" else "1h"
    session = sluice.attach(model, job={"server": {"lease_timeout": lease, "heartbeat_interval": "200ms"}})
    common.say(shards=common.shard_pids(session))
    if fault == "fork" and common.RANK == 0:
        outlive()
    try:
        for step in range(1_000_000):
            if step == 3:
                common.say(running=True)
                if fault == "raise" and common.RANK == 1:
                    # The shard would end rank 0's third step too, if rank 0 still waited for its result.
                    while "running" not in (common.FOLDER / "said-0").read_text():
                        time.sleep(0.02)
                    raise ValueError("the data of rank 1 is gone")
                while fault == "wait" and common.RANK == 0:
                    time.sleep(0.1)  # Rank 1 waits for this rank.
            if step == 2 and fault == "infinite" and common.RANK == 1:
                model.module.weight.register_hook(lambda gradient: gradient * float("inf"))
            if fault == "overflow" and step == 3:
                return overflow(model, session)
            if fault == "infinite" and step == 4:
                common.say(skipped=session.figures().skipped_bundles)
                break
            model(torch.randn(4, 20)).square().mean().backward()
    except sluice.SluiceError as error:
        common.say(error=str(error), code=error.code, rank=error.rank, step=error.step)
        raise
    session.close()


main()
