# SPDX-License-Identifier: Apache-2.0
"""Trains the same model through DDP over gloo and through DDP with Sluice's hook, and compares gradients bit by bit."""

from __future__ import annotations

import contextlib
from typing import Any

import common
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice

STEPS = 5


class Branches(nn.Module):
    """Which of two layers is used depends on the rank and the step."""

    def __init__(self, *, all_used: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.left = nn.Linear(8 * 64, 300)
        self.right = nn.Linear(8 * 64, 300)
        self.scale = nn.Parameter(torch.ones(()))
        self.last = nn.Linear(300, 10)
        self.all_used = all_used

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        x = self.first(x).relu().flatten(1)
        if self.all_used:
            x = self.left(x) + self.right(x)
        else:
            x = self.left(x) if (common.RANK + step) % 2 == 0 else self.right(x)
        return self.last(x.relu()) * self.scale


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bucket_view": {"gradient_as_bucket_view": True},
    "small_buckets": {"bucket_cap_mb": 0.1},
    "static_graph": {"static_graph": True},
    "find_unused": {"find_unused_parameters": True},
    "no_sync": {},
    "bfloat16": {},
    "float64": {},
    "channels_last": {},
    "frozen": {},
}


def prepare(name: str) -> nn.Module:
    torch.manual_seed(7)
    model: nn.Module = Branches(all_used=name != "find_unused")
    if name == "bfloat16":
        model = model.bfloat16()
    if name == "float64":
        model = model.double()
    if name == "channels_last":
        model.first = nn.Conv2d(4, 8, 3, padding=1)
        model = model.to(memory_format=torch.channels_last)
    if name == "frozen":
        model.get_submodule("left").requires_grad_(False)
    return model


def inputs(name: str, step: int, part: int) -> torch.Tensor:
    torch.manual_seed(1000 * common.RANK + 10 * step + part)
    channels = 4 if name == "channels_last" else 1
    x = torch.randn(6, channels, 8, 8)
    return {"bfloat16": x.bfloat16(), "float64": x.double()}.get(name, x)


def run(name: str, hooked: bool) -> list[torch.Tensor]:
    model = DistributedDataParallel(prepare(name), **VARIANTS[name])
    session = sluice.attach(model, uplink="none", downlink="none", quiet=True) if hooked else None
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.05, momentum=0.9)
    gradients = []
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = 3 if name == "no_sync" else 1
        for part in range(parts):
            with model.no_sync() if part + 1 < parts else contextlib.nullcontext():
                model(inputs(name, step, part), step).float().square().mean().backward()
        gradients += [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    if session is not None:
        assert session.step == STEPS, f"{session.step} exchanges, wanted {STEPS}"
        session.close()
    return gradients


def main() -> None:
    common.begin()
    for name in VARIANTS:
        expected, found = run(name, hooked=False), run(name, hooked=True)
        differ = sum(not torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        worst = max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True))
        common.say(**{name: {"gradients": len(found), "differ": differ, "worst": worst}})
    common.end()


main()
