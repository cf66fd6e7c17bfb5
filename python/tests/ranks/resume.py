# SPDX-License-Identifier: Apache-2.0
"""Trains without interruption, or in two parts with a file for each rank between them.

usage: resume.py whole | first | second | forgetful FOLDER
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import common
import torch
from torch import nn

import sluice
from sluice._tensors import sha256

STEPS = 6
JOB: dict[str, Any] = {"compression": {"uplink": "topk:10%", "downlink": "none", "min_elements": 8}}


def main() -> None:
    part, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    common.begin_without_group()
    torch.manual_seed(0)
    model = nn.Linear(30, 20)
    session = sluice.init(job=JOB, quiet=True)
    optimizer = sluice.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), model.named_parameters(), session=session)
    resumed = part in ("second", "forgetful")
    if resumed:
        saved: Any = torch.load(folder / str(common.RANK), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    if part == "second":
        session.load_state_dict(saved["sluice"])
    begin, end = (STEPS // 2, STEPS) if resumed else (0, STEPS // 2 if part == "first" else STEPS)
    for step in range(begin, end):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * common.RANK + step)
        model(torch.randn(8, 30, generator=generator)).square().mean().backward()
        optimizer.step()
    state = session.state_dict()
    if part == "first":
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "sluice": state}, folder / str(common.RANK))
    residual = [state["residual"][name] for name in ("weight", "bias")]
    common.say(parameters=sha256(list(model.parameters())).hex(), residual=sha256(residual).hex(), step=session.step)
    session.close()


main()
