# SPDX-License-Identifier: Apache-2.0
"""Trains a small model through DDP with lossy codecs, as a user's script does."""

from __future__ import annotations

import copy
import hashlib
import pickle
import sys

import common
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice


def sha256(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    common.begin()
    torch.manual_seed(3)
    teacher = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 5))
    torch.manual_seed(4)
    student = nn.Sequential(nn.Linear(20, 256), nn.Tanh(), nn.Linear(256, 5))
    model = DistributedDataParallel(student)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    logged: list[tuple[dict[str, float], int]] = []
    with sluice.attach(model, optimizer, uplink=sys.argv[1], downlink=sys.argv[2], threads=int(sys.argv[3])) as session:
        session.log_to(lambda scalars, step: logged.append((dict(scalars), step)), every=20)
        losses = []
        torch.manual_seed(100 + common.RANK)
        for _ in range(200):
            x = torch.randn(32, 20)
            loss = nn.functional.mse_loss(model(x), teacher(x).detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        session.compare_parameters(list(student.parameters()))
        figures = session.figures()
        # DDP and its hook's state are pickled and copied by scripts; a copy takes no part.
        copied = pickle.loads(pickle.dumps(session))
        copy.deepcopy(copied)
        common.say(
            first=sum(losses[:10]) / 10,
            last=sum(losses[-10:]) / 10,
            sha256=sha256(student),
            ratio_up=figures.ratio_up,
            ratio_down=figures.ratio_down,
            steps=figures.steps,
            contributions=[figures.contributions_min, figures.contributions_max],
            scalars=session.scalars(),
            postfix=session.postfix(),
            logged=logged,
            momentum=optimizer.param_groups[0]["momentum"],
            rate=optimizer.param_groups[0]["lr"],
            page=session.status_page,
            shards=common.shard_pids(session),
            state={key: session.state_dict()[key] for key in ("version", "step", "uplink", "downlink")},
        )
    common.end()


main()
