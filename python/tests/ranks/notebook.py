# SPDX-License-Identifier: Apache-2.0
"""Launches its own functions, as a script does. Its argument names one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice


class Refusal(ValueError):
    """An exception of the script."""


def train(session: sluice.Session) -> tuple[int, int, str, str]:
    dist.init_process_group("gloo")
    model = nn.Linear(20, 30)
    sluice.attach(DistributedDataParallel(model), session=session)
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(4, 20)).square().mean().backward()
    dist.destroy_process_group()
    return session.rank, session.world_size, session.figures().uplink, os.environ["LOCAL_RANK"]


def refuse(session: sluice.Session) -> None:
    if session.rank == 1:
        raise Refusal("rank 1 has no data")
    session.join([("w", torch.zeros(8))])  # Waits for rank 1.


def die(session: sluice.Session) -> None:
    if session.rank == 1:
        os.kill(os.getpid(), 9)
    session.join([("w", torch.zeros(8))])


def wait(session: sluice.Session) -> None:
    subprocess.Popen(["sleep", "100000"])
    if session.rank == 0:
        print("waits", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    print("result", sluice.launch(globals()[sys.argv[1]], workers=2, uplink="int4", quiet=True))
