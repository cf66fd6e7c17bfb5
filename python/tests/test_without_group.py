# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer, broadcasts and Sluice's own DDP on two real ranks, without a process group of torch.distributed."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Rank, Start, await_all


@pytest.fixture(scope="module")
def ranks(start: Start) -> list[Rank]:
    return start("without_group.py")


def _said(ranks: list[Rank], check: str) -> tuple[dict[str, Any], dict[str, Any]]:
    zero, one = (rank.await_word(check) for rank in ranks)
    return zero, one


def test_steps_are_those_of_one_process_that_averages(ranks: list[Rank]) -> None:
    for found in _said(ranks, "equal"):
        assert found == {"sgd": [], "adamw": [], "accumulation": [], "closure": []}


def test_steps_of_ddp_without_a_group_are_the_same(ranks: list[Rank]) -> None:
    for found in _said(ranks, "equal_ddp"):
        assert found == {"copies": [], "views": []}


def test_two_models_have_a_session_each(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "two_models")
    assert zero["sha256"] == one["sha256"]
    for rank, found in enumerate((zero, one)):
        assert found["steps"] == [4, 4]
        assert found["uplinks"] == ["topk:5%+int4"] * 2
        # The codec delays gradients.
        assert found["momenta"] == [0.5, 0.5]
        assert found["place"] == [rank, 2]
        assert found["local_rank"] == rank
        assert found["indices"] == list(range(rank, 10, 2))
        assert f"<td>{rank} of 2</td>" in found["html"] and "topk:5%+int4 up" in found["html"]
        assert (found["was_initialized"], found["is_initialized"], found["is_dist"]) == (True, False, False)
    assert "http://127.0.0.1:" in zero["html"] and "http" not in one["html"]


@pytest.mark.parametrize("check", ["ddp", "scaler"])
def test_a_loss_scaler_hears_of_an_overflow_on_another_rank(ranks: list[Rank], check: str) -> None:
    zero, one = _said(ranks, check)
    assert zero["end"] == one["end"]
    for found in (zero, one):
        # In step 1, the mean covers rank 0 alone.
        assert found["moved"] == [True, True, False, True]
        assert found["scales"] == [1024.0, 512.0, 256.0, 256.0]


def test_ddp_of_its_own_begins_with_the_values_of_rank_0(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "ddp")
    assert zero["begin"] == one["begin"]
    assert not zero["is_dist"]


def test_broadcasts_are_exact(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "broadcasts")
    assert zero["wrong"] == one["wrong"] == []
    assert zero["object"] == one["object"] == {"rank": 1, "a": [1, "b"]}
    # Equal values do not travel: two messages agree on that.
    assert zero["sent_again"] == one["sent_again"] == 2
    assert zero["optimizer"] == one["optimizer"]
    assert "'torch.bfloat16', 'torch.float32'" in zero["optimizer"][1] and zero["optimizer"][1].endswith(" 0.2")
    assert zero["keys_left"] in (0, None)


def test_broadcasts_that_do_not_fit_are_refused_on_all_ranks(ranks: list[Rank]) -> None:
    for found in _said(ranks, "broadcasts"):
        shape, count, pickled, root, number = found["errors"]
        assert shape.startswith("INVALID_ARGUMENT broadcast_parameters: b.weight has shape (3,) and torch.float32 on rank 1"), shape
        assert count.endswith("rank 1 has 1 tensors, and rank 0 has 2: b is not on both"), count
        assert "rank 0 cannot pickle the object" in pickled
        assert number.startswith("INVALID_ARGUMENT broadcast_parameters: on rank 1, a is a int and no tensor"), number
        assert root == "INVALID_ARGUMENT root_rank 2 is not one of 2 ranks: they begin with 0"


def test_all_checks_end_well(ranks: list[Rank]) -> None:
    await_all(ranks)
