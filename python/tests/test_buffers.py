# SPDX-License-Identifier: Apache-2.0
"""Buffers: ranks average them at intervals."""

from __future__ import annotations

import pytest
import torch
from conftest import Rank, Start, await_all
from torch import nn

from sluice._buffers import averaged_buffers


@pytest.fixture(scope="module")
def ranks(start: Start) -> list[Rank]:
    return start("buffers.py")


@pytest.mark.parametrize("kind", ["ddp", "optimizer"])
def test_statistics_are_averaged_in_the_steps_that_are_due(ranks: list[Rank], kind: str) -> None:
    zero, one = (rank.await_word(kind) for rank in ranks)
    assert max(zero["far"] + one["far"]) < 1e-6
    same = [a == b for a, b in zip(zero["hashes"], one["hashes"], strict=True)]
    assert same == [False, False, True, False]


def test_ranks_end_well(ranks: list[Rank]) -> None:
    await_all(ranks)


def test_constants_and_numbers_stay_each_ranks_own() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[1].register_buffer("mask", torch.full((3,), -float("inf")))
    model[1].register_buffer("table", torch.ones(3), persistent=False)
    model[1].register_buffer("scale", torch.ones((), dtype=torch.float64))
    model[1].register_buffer("again", model[0].running_mean)
    assert [name for name, _ in averaged_buffers(model)] == ["0.running_mean", "0.running_var", "1.scale"]
