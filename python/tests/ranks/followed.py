# SPDX-License-Identifier: Apache-2.0
"""Trains with servers that run already, in rounds if the job says so, until the test has followed enough. Rank 0 saves its parameters.

usage: followed.py JOB COORDINATOR TOKEN_FILE DATA
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys

import common
import torch
from torch import nn

import sluice

JOB, COORDINATOR, TOKEN, DATA = sys.argv[1:]
LAST = common.FOLDER / "last"  # The last round. Written by rank 0, which is at most one round behind rank 1.


def is_last(exchanges: int) -> bool:
    """Returns whether this many exchanges are all. Ranks agree, because each exchange waits for both."""
    if common.RANK == 0 and not LAST.exists() and (common.FOLDER / "enough").exists():
        (common.FOLDER / "last-new").write_text(str(exchanges + 2))
        (common.FOLDER / "last-new").rename(LAST)
    return LAST.exists() and exchanges == int(LAST.read_text())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(common.RANK)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    model[2].bias.requires_grad_(False)  # Not exchanged.
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    inputs, labels = (values[common.RANK :: common.SIZE] for values in torch.load(DATA))
    session = sluice.init(job=JOB, coordinator=COORDINATOR, token_file=TOKEN, quiet=True)
    in_rounds = json.loads(pathlib.Path(JOB).read_text()).get("mode") == "local_sgd"
    if not in_rounds:
        optimizer = sluice.DistributedOptimizer(optimizer, model.named_parameters(), session=session)
    with sluice.LocalSGD(session, model, optimizer, sync_every=3) if in_rounds else contextlib.nullcontext() as rounds:
        step = 0
        while True:
            chosen = [(25 * step + i) % len(inputs) for i in range(25)]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimizer.step()
            step += 1
            if rounds is not None and rounds.local_step > 0:
                continue
            if session.step == 1:
                common.say(begun=True)
                common.wait_for(common.FOLDER / "followed")
            if is_last(session.step):
                break
    if common.RANK == 0:
        torch.save(dict(model.named_parameters()), common.FOLDER / "parameters.pt")
    common.say(exchanges=session.step)
    session.close()


if __name__ == "__main__":
    main()
