# SPDX-License-Identifier: Apache-2.0
"""What users of other libraries reported, on two ranks. Each check says its results."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice

LOSSLESS = {"uplink": "none", "downlink": "none", "quiet": True}


def static_graph() -> dict[str, Any]:
    """A static graph with accumulation: are the gradients exchanged in each step, and equal on both ranks?"""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 3), static_graph=True)
    session = sluice.attach(model, **LOSSLESS)
    steps, equal = [], []
    for step in range(4):
        model.zero_grad()
        for part in range(2 if step else 1):  # PyTorch 2.11 fails if no_sync() comes first.
            with model.no_sync() if step and part == 0 else contextlib.nullcontext():
                model(torch.full((2, 6), float(1 + common.RANK + step + part))).square().mean().backward()
        steps.append(session.step)
        own = model.module.weight.grad.clone()
        both = [torch.empty_like(own) for _ in range(common.SIZE)]
        dist.all_gather(both, own)
        equal.append(torch.equal(*both))
    session.close()
    return {"steps": steps, "equal": equal}


def traffic() -> dict[str, Any]:
    """The bytes of two ranks beside those that one process alone counts."""
    found = []
    forecasts = []
    for alone in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(300, 200)
        place = {"rank": 0, "world_size": 1} if alone else {}
        with sluice.init(model, uplink="topk:5%+int4", downlink="int8", quiet=True, **place) as session:
            for step in range(5):
                torch.manual_seed(step)
                for i, parameter in enumerate(model.parameters()):
                    session.submit(i, torch.randn(parameter.shape))
                session.wait()
            found.append([session.figures().bytes_up, session.figures().bytes_down, session.figures().dense_bytes])
            forecasts.append(session.forecast())
    assert forecasts[0] is not None
    return {"together": found[0], "alone": found[1], "forecast": dataclasses.asdict(forecasts[0])}


def large() -> dict[str, Any]:
    """A parameter of 20 MB, more than five times the usual limit of a gRPC message."""
    model = nn.Linear(5_000_000, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    with sluice.init(model, **LOSSLESS) as session:
        session.submit(0, torch.full((1, 5_000_000), float(common.RANK)))
        session.wait()
        mean = torch.empty(1, 5_000_000)
        session.apply(0, mean)
        return {"values": mean.unique().tolist(), "bytes": session.figures().bytes_up}


def missing() -> dict[str, Any]:
    """Rank 1 does not come until rank 0 has given up."""
    done = common.FOLDER / "gave-up"
    error: dict[str, Any] = {}
    if common.RANK == 0:
        try:
            sluice.init(join_timeout=1.0, **LOSSLESS)
        except sluice.SluiceError as failure:
            error = {"text": str(failure), "code": failure.code}
        done.touch()
    while not done.exists():
        time.sleep(0.02)
    sluice._init._sessions = 100  # Both ranks count their sessions alike again.
    return error


def drift() -> dict[str, Any]:
    """A parameter of rank 1 changes outside the optimizer. The ranks compare checksums in each step."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 3))
    session = sluice.attach(model, **LOSSLESS, job={"server": {"heartbeat_interval": "100ms"}, "buffer_sync_interval": 1})
    if common.RANK == 1:
        model.module.weight.data[0, 0] += 1
    try:
        for _ in range(10_000):
            model(torch.ones(2, 6)).sum().backward()
            session.compare_parameters(list(model.parameters()))
    except sluice.SluiceError as failure:
        return {"text": str(failure)}
    return {"text": "no error"}


def main() -> None:
    common.begin()
    for check in (static_graph, traffic, large, missing, drift):
        common.say(**{check.__name__: check()})
    common.end()


main()
