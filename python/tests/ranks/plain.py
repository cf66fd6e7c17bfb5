# SPDX-License-Identifier: Apache-2.0
"""Trains through DDP, as a script that knows nothing of Sluice. Its argument is a folder for the result."""

import hashlib
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    dist.init_process_group("gloo", rank=int(os.environ.get("RANK", "0")), world_size=int(os.environ.get("WORLD_SIZE", "1")))
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(300, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256(model.module.weight.detach().numpy().tobytes()).hexdigest()
    (pathlib.Path(sys.argv[1]) / f"sha256-{dist.get_rank()}").write_text(digest)
    dist.destroy_process_group()
