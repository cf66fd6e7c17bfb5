# SPDX-License-Identifier: Apache-2.0
"""A script that `sluice run -- COMMAND` starts. Ranks, addresses and codecs come from its environment alone."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import time

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice


def peer_ports() -> list[int]:
    """The ports that this process's TCP connections lead to."""
    own = set()
    for fd in pathlib.Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(fd))
        except FileNotFoundError:
            continue
    tables = [pathlib.Path("/proc/self/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    connections = [line.split() for table in tables for line in table]
    return sorted({int(words[2].rpartition(":")[2], 16) for words in connections if f"socket:[{words[9]}]" in own})


def main() -> None:
    fault = sys.argv[1]
    print(f"rank {common.RANK} prints a line", flush=True)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(300, 40))
    session = sluice.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fault == "child":
        subprocess.Popen(["sleep", "100000"])
    torch.manual_seed(100 + common.RANK)
    for step in range(20 if fault == "none" else 1_000_000):
        if fault == "exit" and step == 3 and common.RANK == 1:
            print("no data here", flush=True)
            sys.exit(3)
        optimizer.zero_grad()
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
        if step == 2:
            common.say(running=True)
        if fault == "child":
            time.sleep(0.01)
    figures = session.figures()
    common.say(
        ranks=[common.RANK, int(os.environ["LOCAL_RANK"]), dist.get_rank(), session.rank, session.world_size],
        codecs=[figures.uplink, figures.downlink],
        ports=peer_ports(),
        coordinator=int(os.environ["SLUICE_COORDINATOR"].rpartition(":")[2]),
        proxy=os.environ.get("grpc_proxy", ""),
        sha256=hashlib.sha256(model.module.weight.detach().numpy().tobytes()).hexdigest(),
        bytes_up=figures.bytes_up,
    )
    dist.destroy_process_group()


main()
