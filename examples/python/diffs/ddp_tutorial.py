# SPDX-License-Identifier: Apache-2.0
"""The shape of PyTorch's DDP tutorial: a process group, a toy model in DDP, one step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def demo_basic():
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} runs")
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    ddp_model = DDP(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)

    optimizer.zero_grad()
    loss = nn.functional.mse_loss(ddp_model(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    demo_basic()
