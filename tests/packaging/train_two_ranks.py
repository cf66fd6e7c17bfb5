# SPDX-License-Identifier: Apache-2.0
"""A script of a user, for torchrun: trains a linear model with DistributedDataParallel and Sluice, and prints `trained` on each rank."""
import torch, sluice
torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = sluice.attach(model, optimizer)
losses = []
for _ in range(30):
    x = torch.randn(32, 20)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
session.compare_parameters(list(model.parameters()))
assert losses[-1] < losses[0] / 2, losses
print("trained")
