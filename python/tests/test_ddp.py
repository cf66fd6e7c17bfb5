# SPDX-License-Identifier: Apache-2.0
"""DDP with Sluice's hook, on two real ranks with real shards."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Rank, Start, await_all, await_that, is_running

VARIANTS = [
    "plain",
    "bucket_view",
    "small_buckets",
    "static_graph",
    "find_unused",
    "no_sync",
    "bfloat16",
    "float64",
    "channels_last",
    "frozen",
]


@pytest.fixture(scope="module")
def equal(start: Start) -> list[Rank]:
    return start("equal.py")


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_ddp_over_gloo(equal: list[Rank], variant: str) -> None:
    for rank in equal:
        found = rank.await_word(variant)
        assert found["gradients"] > 0
        if variant == "float64":
            # The job exchanges float32.
            assert found["worst"] < 1e-6
        elif variant == "bfloat16":
            # gloo rounds the sum to bfloat16, and Sluice the mean.
            assert found["worst"] < 0.02
        else:
            assert found["differ"] == 0, found


def test_all_variants_end_well(equal: list[Rank]) -> None:
    await_all(equal)


def _train(start: Start, uplink: str, downlink: str, threads: int = 1) -> list[dict[str, Any]]:
    ranks = start("train.py", uplink, downlink, str(threads))
    await_all(ranks)
    keys = ("first", "last", "sha256", "ratio_up", "ratio_down", "steps", "contributions", "scalars", "postfix", "logged")
    keys += ("momentum", "rate", "page", "shards", "state")
    results = [{key: rank.await_word(key) for key in keys} for rank in ranks]
    for result in results:
        for pid in result["shards"]:
            await_that(lambda pid=pid: not is_running(pid), f"shard process {pid} has ended")
    return results


def test_int8_trains(start: Start) -> None:
    zero, one = _train(start, "int8", "int8")
    assert zero["last"] < zero["first"] / 3
    assert zero["sha256"] == one["sha256"]
    assert zero["steps"] == 200
    assert zero["contributions"] == [2, 2]
    assert 3 < zero["ratio_up"] < 4
    assert 3 < zero["ratio_down"] < 4
    # int8 sends every value in every step: the optimizer stays as it was.
    assert (zero["momentum"], zero["rate"]) == (0.9, 0.05)
    # Rank 0 started the only shard.
    assert len(zero["shards"]) == 1 and one["shards"] == []
    assert zero["page"].startswith("http://127.0.0.1:") and one["page"] is None
    assert zero["state"] == {"version": 1, "step": 200, "uplink": "int8", "downlink": "int8"}


def test_sparse_codecs_train_with_less_momentum(start: Start) -> None:
    zero, one = _train(start, "topk:5%+int4", "topk:10%+int4")
    assert zero["last"] < zero["first"] / 2
    assert zero["sha256"] == one["sha256"]
    assert zero["ratio_up"] > 15
    assert zero["momentum"] == 0.5
    assert zero["rate"] == pytest.approx(0.05 * 0.5 / 0.1)
    assert set(zero["scalars"]) == {"bytes/up", "bytes/down", "ratio/up", "ratio/down", "time/exposed_ms"}
    assert zero["scalars"]["ratio/up"] == pytest.approx(zero["ratio_up"])
    assert [step for _, step in zero["logged"]] == list(range(20, 201, 20))
    assert zero["postfix"]["up"].endswith("x)") and zero["postfix"]["wait"].endswith(" ms")
    # Threads of ranks and servers change no bit.
    threaded, _ = _train(start, "topk:5%+int4", "topk:10%+int4", threads=3)
    assert threaded["sha256"] == zero["sha256"]
