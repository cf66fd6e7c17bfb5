# SPDX-License-Identifier: Apache-2.0
"""Trains in a job with checkpoints. In their first lives, some ranks are killed after a checkpoint.

usage: checkpointed.py KILLED CHECKPOINTS [KEYS]     KILLED: the ranks to kill, such as "01", or "none"
Without KEYS, the job comes from `sluice run`.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

import common
import torch
from torch import nn

import sluice
from sluice._tensors import sha256

STEPS = 14


def die_after_the_checkpoint(folder: pathlib.Path, step: int) -> None:
    lived = folder.parent / f"{folder.name}-lived-{common.RANK}"
    if step != 10 or lived.exists():
        return
    while not list(folder.glob("step-*/manifest.json")):
        time.sleep(0.02)
    lived.touch()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    killed, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if len(sys.argv) > 3:
        common.begin_without_group()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 20), nn.BatchNorm1d(20), nn.Linear(20, 1))
    session = sluice.init(model, job=json.loads(sys.argv[3]) if len(sys.argv) > 3 else None)
    optimizer = sluice.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(), session=session)
    restored = session.restored
    if restored is not None:
        model.load_state_dict(restored["model"])
        optimizer.load_state_dict(restored["optimizer"])
    common.say(restored_step=session.restored_step)
    assert session.step == session.restored_step
    while session.step < STEPS:
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * common.RANK + session.step)
        model(torch.randn(8, 30, generator=generator)).square().mean().backward()
        optimizer.step()
        if session.checkpoint_due:
            session.save_checkpoint({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        if str(common.RANK) in killed:
            die_after_the_checkpoint(folder, session.step)
    session.compare_parameters(list(model.parameters()))
    # Checkpoints average the statistics too, and a kill moves a checkpoint to another step.
    common.say(parameters=sha256(list(model.parameters())).hex())
    session.close()


main()
