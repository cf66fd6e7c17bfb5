# SPDX-License-Identifier: Apache-2.0
"""FSDP2 inside a node and Sluice between nodes: two "nodes" of two ranks on this machine."""

from __future__ import annotations

import pytest
import torch
from conftest import Rank, Start, await_all

import sluice

try:
    from torch.distributed.fsdp import fully_shard  # noqa: F401
except ImportError:
    pytest.skip(f"PyTorch {torch.__version__} has no FSDP2", allow_module_level=True)


@pytest.fixture(scope="module")
def ranks(start: Start) -> list[Rank]:
    return start("fsdp.py", size=4)


@pytest.mark.parametrize("case", ["sgd", "accumulation", "clipping", "adamw", "closure"])
def test_two_nodes_train_as_one_process_with_all_batches(ranks: list[Rank], case: str) -> None:
    for rank in ranks:
        found = rank.await_word("equal")[case]
        assert found["worst"] < 1e-6, found
        assert found["steps"] == 4
        # The second rank of a node holds no part of a parameter with one element. Frozen parameters are not exchanged.
        names = [f"{block}.{name}" for block in (0, 1) for name in ("scale", "unused", "first.weight", "first.bias", "again.weight", "again.bias")]
        assert found["names"] == [name for name in names if rank.rank % 2 == 0 or "scale" not in name]


def test_nodes_stay_equal_with_a_codec_that_delays(ranks: list[Rank]) -> None:
    found = [rank.await_word("compressed") for rank in ranks]
    assert found[0]["sha256"] == found[2]["sha256"] != found[1]["sha256"] == found[3]["sha256"]
    for rank, own in enumerate(found):
        assert own["momentum"] == 0.5
        assert own["ratio"] > 5
        assert own["place"] == [rank // 2, 2, rank, 4]
        assert own["indices"] == [rank, rank + 4]
        assert own["shards"] == (1 if rank < 2 else 0)  # One server for each shard.
    mean = [sum(losses) / 4 for losses in zip(*(own["losses"] for own in found), strict=True)]
    assert mean[-1] < mean[0] / 1.5
    # One process of the four says what the codec and the momentum are.
    assert ["because the codecs delay" in rank.text() for rank in ranks] == [True, False, False, False]
    assert ["sluice: 2 ranks" in rank.text() for rank in ranks] == [True, False, False, False]


def test_models_that_do_not_fit_are_refused(ranks: list[Rank]) -> None:
    for rank in ranks:
        plain, hybrid, early, small, one, few, own_rank, scaled = rank.await_word("refused")
        assert plain.startswith("INVALID_ARGUMENT fsdp_attach: 0.scale is not sharded"), plain
        assert hybrid.startswith("UNIMPLEMENTED fsdp_attach: 0.scale has the placements (Replicate(), Shard(dim=0)) on a mesh of 2"), hybrid
        assert early.startswith("INVALID_ARGUMENT fsdp_attach: the optimizer does not train 0.scale: create it with"), early
        assert "the parameters are too small for 2 ranks: rank 1 holds no part of any" in small, small
        assert "each needs servers of its own: give a list of 2 coordinators" in one, one
        assert "1 coordinators were given, and a node has 2 ranks" in few, few
        assert "rank follows from the mesh" in own_rank, own_rank
        assert scaled.startswith("UNIMPLEMENTED") and "fsdp_attach" in scaled, scaled


def test_a_model_that_is_sharded_over_all_ranks_exchanges_nothing_and_says_so(ranks: list[Rank]) -> None:
    for rank in ranks:
        found = rank.await_word("one_mesh")
        assert found["kind"] == "LocalSession" and found["step"] == 1
        assert ("shards the model over all 4 ranks, so no gradients go through Sluice" in found["said"]) == (rank.rank == 0)


def test_all_checks_end_well(ranks: list[Rank]) -> None:
    await_all(ranks)


def test_without_sharding_one_process_is_told() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(sluice.SluiceError, match="weight is not sharded"):
        sluice.fsdp_attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
