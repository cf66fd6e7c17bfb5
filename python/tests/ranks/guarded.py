# SPDX-License-Identifier: Apache-2.0
"""Trains a small model in a job with a guard. From step 20 on, rank 2 changes its gradients.

guarded.py FACTOR POLICY: the factor by which rank 2 multiplies its gradients, and guard.policy
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import common
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice

STEPS = 120
BEGIN = 20


def read_page(session: sluice.Session) -> Any:
    with urllib.request.urlopen(f"{session.status_page}status.json") as answer:
        return json.load(answer)


def suspects(session: sluice.Session) -> dict[str, str]:
    return {str(worker["rank"]): worker["suspect"] for worker in read_page(session)["workers"] if worker["suspect"]}


def main() -> None:
    factor = float(sys.argv[1])
    common.begin()
    torch.manual_seed(3)
    teacher = nn.Linear(20, 5)
    student = nn.Linear(20, 5)
    step = 0
    if common.RANK == 2:
        for parameter in student.parameters():
            parameter.register_hook(lambda gradient: factor * gradient if step >= BEGIN else gradient)
    model = DistributedDataParallel(student)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    job = {"guard": {"policy": sys.argv[2]}}
    with sluice.attach(model, uplink="int8", downlink="none", job=job) as session:
        torch.manual_seed(100 + common.RANK)
        for step in range(STEPS):
            x = torch.randn(32, 20)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), teacher(x).detach())
            loss.backward()
            optimizer.step()
        if common.RANK == 0 and factor != 1:
            # The shard's report reaches the page with the next heartbeat.
            while not (found := suspects(session)):
                pass
            common.say(suspects=found, warnings=[warning["text"] for warning in read_page(session)["warnings"]])
        common.say(loss=loss.item())
        session.compare_parameters(list(student.parameters()))
    common.end()


main()
