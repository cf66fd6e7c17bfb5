# SPDX-License-Identifier: Apache-2.0
"""The shape of nanoGPT's train.py: no main function, DDP if torchrun started it, accumulated gradients, a loss scaler."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

gradient_accumulation_steps = 4
max_iters = 3
ddp = "RANK" in os.environ
if ddp:
    dist.init_process_group("gloo")
    gradient_accumulation_steps //= dist.get_world_size()
torch.manual_seed(1337 + (dist.get_rank() if ddp else 0))

model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50))
scaler = torch.amp.GradScaler("cpu", enabled=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
if ddp:
    model = DDP(model)

for iter_num in range(max_iters):
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        tokens = torch.randint(50, (8, 17))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / gradient_accumulation_steps
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"loss {loss.item() * gradient_accumulation_steps:.4f}")

if ddp:
    dist.destroy_process_group()
