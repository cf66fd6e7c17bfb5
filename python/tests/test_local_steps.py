# SPDX-License-Identifier: Apache-2.0
"""LocalSGD and DiLoCo, on two real ranks and in a process that is alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Rank, Start, await_all
from torch import nn

import sluice
from sluice._local import _AfterStep
from sluice._streaming import begins_after

AVERAGE = {"outer_optimizer": "average"}


@pytest.fixture(scope="module")
def ranks(start: Start) -> list[Rank]:
    return start("local_steps.py")


def _said(ranks: list[Rank], check: str) -> tuple[Any, Any]:
    zero, one = (rank.await_word(check) for rank in ranks)
    return zero, one


@pytest.mark.parametrize("block", ["local_sgd", "diloco"])
def test_rounds_are_those_of_one_process(ranks: list[Rank], block: str) -> None:
    for said in _said(ranks, "equal"):
        found = said[block]
        assert found["same"] == [True] * 4
        # A shard rounds in another order than PyTorch, and publishes a difference.
        assert found["apart"] < 1e-6
        # Two rounds, and the incomplete one at the end of the block.
        assert found["exchanges"] == 3
        assert found["local_step"] == 0
        assert found["left"] == [True, True]


@pytest.mark.parametrize("codecs", ["sparse", "int8"])
def test_ranks_agree_after_each_exchange_with_lossy_codecs(ranks: list[Rank], codecs: str) -> None:
    zero, one = (said[codecs] for said in _said(ranks, "lossy"))
    assert zero["states"] == one["states"]
    assert len(set(zero["states"])) == 3
    assert zero["ratio"] > 2.5


def test_a_rank_without_data_for_a_round_does_not_count(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "uneven")
    assert zero["state"] == one["state"]
    assert one["moved"]
    assert (zero["exchanges"], zero["counts"]) == (one["exchanges"], one["counts"]) == (2, 1)


def test_a_rank_that_takes_more_steps_has_more_weight(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "weighted")
    assert zero == one
    assert zero["exchanges"] == 2
    assert zero["apart"] < 1e-6


def test_a_late_rank_skips_the_rounds_that_closed_without_it(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "late")
    assert (zero["seen"][:4], zero["seen"][-1]) == ([1, 2, 3, 4], 6)
    assert one["seen"][0] == 4  # One round of its own, and three that it skips.
    assert one["state"] == zero["state"]


def test_streamed_fragments_are_those_of_one_process(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "streamed")
    for name, exchanges in (("average", 7), ("nesterov", 6)):
        assert zero[name]["state"] == one[name]["state"]
        assert zero[name]["apart"] < 1e-6 and one[name]["apart"] < 1e-6
        assert zero[name]["exchanges"] == [exchanges, exchanges]
        assert zero[name]["elements"] == 0  # The last exchanges have each element once.
    assert zero["lossy"]["state"] == one["lossy"]["state"]


@pytest.mark.parametrize(("every", "fragments"), [(1, 1), (6, 3), (7, 3), (5, 4), (20, 4), (64, 64)])
def test_an_exchange_begins_when_its_share_of_the_round_is_over(every: int, fragments: int) -> None:
    begun = [step for step in range(5 * every) if begins_after(step, every, fragments)]
    assert begun == [e * every // fragments for e in range(1, 5 * fragments)]


def test_streaming_needs_float32(alone: None) -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    with new_session(job=AVERAGE | {"fragment_delay": 1}) as session, pytest.raises(sluice.SluiceError, match="needs float32 parameters"):
        sluice.LocalSGD(session, model, torch.optim.SGD(model.parameters(), lr=0.1), sync_every=2)


def test_other_types_lose_no_small_change(ranks: list[Rank]) -> None:
    for found in _said(ranks, "types"):
        assert found["narrow"] == [1.0, 1.0 + 2**-7, 1.0 + 2**-6, 1.0 + 2**-6]
        moved = 4 * 2**-8
        assert found["values"] == {"narrow": [1 + moved], "wide": [2 + moved], "scalar": [3 + moved], "last": [1 + moved], "frozen": [4.0]}


def test_made_data_is_learned(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "accuracy")
    assert zero == one
    assert min(zero.values()) > 0.85, zero


def test_an_exception_in_the_block_ends_the_other_ranks(ranks: list[Rank]) -> None:
    zero, one = _said(ranks, "failed")
    assert one == "ValueError  the data has ended; exchanges 1"
    assert zero.startswith("SluiceError ") and "ValueError: the data has ended" in zero, zero
    await_all(ranks)


# In a process that is alone.


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SLUICE_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)


def new_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def new_session(every: int = 2, **options: Any) -> sluice.Session:
    return sluice.init(uplink="none", downlink="none", local_steps=every, quiet=True, **options)


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    optimizer.zero_grad()
    model(torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))).square().mean().backward()
    optimizer.step()


def test_averaging_alone_changes_nothing(alone: None) -> None:
    expected, model = new_model(), new_model()
    adams = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (expected, model)]
    with new_session(job=AVERAGE) as session:
        assert isinstance(session, sluice.LocalSession)
        rounds = sluice.LocalSGD(session, model, adams[1], sync_every=2)
        for epoch in range(2):
            with rounds:
                for step in range(5):
                    take_step(expected, adams[0], step)
                    take_step(model, adams[1], step)
                    assert rounds.local_step == (step + 1) % 2
            assert session.step == 3 * (epoch + 1)
    for a, b in zip(expected.parameters(), model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)


def test_the_outer_optimizer_alone_is_that_of_pytorch(alone: None) -> None:
    expected, model = new_model(), new_model()
    outer = new_model()
    outer_optimizer = torch.optim.SGD(outer.parameters(), lr=0.5, momentum=0.6, nesterov=True)
    inners = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (expected, model)]
    keys = {"outer_lr": 0.5, "outer_momentum": 0.6}
    with new_session(job=keys) as session, sluice.DiLoCo(session, model, inners[1], **keys, sync_every=2):
        for step in range(8):
            take_step(expected, inners[0], step)
            take_step(model, inners[1], step)
            if step % 2 == 1:
                for a, b in zip(outer.parameters(), expected.parameters(), strict=True):
                    a.grad = a.detach() - b.detach()
                outer_optimizer.step()
                expected.load_state_dict(outer.state_dict())
            for a, b in zip(expected.parameters(), model.parameters(), strict=True):
                assert torch.allclose(a, b, rtol=0, atol=1e-6)


def test_lossy_codecs_alone_keep_what_they_left_out(alone: None) -> None:
    session = sluice.init(local_steps=1, job={**AVERAGE, "compression": {"uplink": "topk:5%", "downlink": "topk:20%"}}, quiet=True)
    weight = nn.Parameter(torch.zeros(2000))
    model = nn.ParameterDict({"weight": weight})
    optimizer = torch.optim.SGD([weight], lr=1.0)
    change = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    with session, sluice.LocalSGD(session, model, optimizer, sync_every=1):
        for _ in range(200):
            weight.grad = -change
            optimizer.step()
        assert float((weight.detach() / 200 - change).norm() / change.norm()) < 0.2
        assert session.figures().ratio_up > 5


@pytest.mark.filterwarnings("ignore:Seems like")  # Later schedulers look for another mark, and need no such hook.
@pytest.mark.parametrize("late", [False, True])
def test_optimizers_without_hooks(alone: None, late: bool) -> None:
    calls: list[int] = []
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = None if late else torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = vars(optimizer).get("step")
    after = _AfterStep(optimizer, lambda: calls.append(1))
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    weight = model[0].weight.detach().clone()
    take_step(model, optimizer)
    scheduler.step()
    assert calls == [1] and not torch.equal(weight, model[0].weight)
    after.remove()
    take_step(model, optimizer)
    assert calls == [1]
    assert late or vars(optimizer).get("step") == before


def _freeze(model: nn.Sequential, on: bool) -> nn.Sequential:
    model[0].requires_grad_(not on)
    return model


def _sync(session: sluice.Session, model: nn.Sequential) -> None:
    """The first layer is unfrozen inside the block."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sluice.DiLoCo(session, _freeze(model, True), optimizer, sync_every=2):
        take_step(_freeze(model, False), optimizer)


def _change(session: sluice.Session, model: nn.Sequential) -> None:
    rounds = sluice.DiLoCo(session, model, torch.optim.SGD(model.parameters(), lr=0.1), sync_every=2)
    model[1].bias.data.add_(1)
    with rounds:
        pass


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


WRONG: dict[str, tuple[dict[str, Any], Callable[[sluice.Session, nn.Sequential], Any], str]] = {
    "a job that exchanges in each step": (
        {"local_steps": None},
        lambda s, m: sluice.LocalSGD(s, m, _sgd(m), 2),
        "LocalSGD: the session's job has `mode: sync`, in which ranks exchange in each step: make it with "
        "sluice.init(local_steps=2, job={'outer_optimizer': 'average'})",
    ),
    "another number of steps": ({}, lambda s, m: sluice.DiLoCo(s, m, _sgd(m), sync_every=3), "sync_every is 3, and the session's job has `local_steps: 2`"),
    "an outer optimizer for LocalSGD": ({}, lambda s, m: sluice.LocalSGD(s, m, _sgd(m), 2), "`outer_optimizer: nesterov`: make it with"),
    "no outer optimizer for DiLoCo": ({"job": AVERAGE}, lambda s, m: sluice.DiLoCo(s, m, _sgd(m), sync_every=2), "or use sluice.LocalSGD"),
    "another outer rate": (
        {},
        lambda s, m: sluice.DiLoCo(s, m, _sgd(m), outer_lr=0.5, sync_every=2),
        "outer_lr is 0.5, and the session's job has `outer_lr: 0.7`: make it with "
        "sluice.init(local_steps=2, job={'outer_lr': 0.5, 'outer_momentum': 0.9})",
    ),
    "frozen parameters": ({}, lambda s, m: sluice.DiLoCo(s, m.requires_grad_(False), _sgd(m), sync_every=2), "no trainable parameters"),
    "a parameter of another model": (
        {},
        lambda s, m: sluice.DiLoCo(s, m, _sgd(new_model()), sync_every=2),
        "the optimizer trains parameter 0 of its group 0, of shape (3, 4), which the session does not exchange",
    ),
    "another model": (
        {"model": new_model()},
        lambda s, m: sluice.DiLoCo(s, m, _sgd(m), sync_every=2),
        "the session does not exchange 0.weight: one session exchanges one model",
    ),
    "a parameter that is unfrozen later": ({}, _sync, "the optimizer trains parameter 0 of its group 0, of shape (3, 4)"),
    "a change outside the block": ({}, _change, "1.bias has changed since the last exchange"),
    "an optimizer that exchanges": ({}, lambda s, m: sluice.DistributedOptimizer(_sgd(m), session=s), "DistributedOptimizer exchanges gradients in each step"),
    "DDP": ({}, lambda s, m: sluice.DistributedDataParallel(m, session=s), "DistributedDataParallel exchanges gradients in each step"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_combinations_are_named(alone: None, case: str) -> None:
    options, act, words = WRONG[case]
    model = new_model()
    session = sluice.init(**{"local_steps": 2, "quiet": True} | options)
    try:
        with pytest.raises(sluice.SluiceError) as error:
            act(session, model)
        assert words in str(error.value)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"local_steps": 4, "job": {"local_steps": 5}}, "job has `local_steps: 5`, and the script has local_steps=4"),
        ({"local_steps": 4, "job": {"mode": "sync"}}, "local_steps"),
        ({"local_steps": 0}, "local_steps"),
    ],
)
def test_the_job_must_have_the_same_local_steps(alone: None, options: dict[str, Any], words: str) -> None:
    with pytest.raises(sluice.SluiceError) as error:
        sluice.init(quiet=True, **options)
    assert words in str(error.value) and error.value.code == "INVALID_ARGUMENT"


def test_a_file_says_everything_itself(alone: None, tmp_path: Any) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: mine\nmode: local_sgd\nlocal_steps: 4\n")
    with sluice.init(local_steps=4, job=file, quiet=True) as session:
        assert session.figures().uplink == "none"
    with pytest.raises(sluice.SluiceError, match="has `local_steps: 4`, and the script has local_steps=2"):
        sluice.init(local_steps=2, job=file, quiet=True)


def test_a_preset_brings_its_codecs(alone: None) -> None:
    with sluice.init(job={"preset": "sparse_loco"}, quiet=True) as session:
        figures = session.figures()
    assert figures.uplink.startswith("topk_exact:1.5625%") and "+2bit" in figures.uplink
    session = sluice.init(job={"preset": "sparse_loco"}, uplink="int8", local_steps=3, quiet=True)
    assert session.figures().uplink == "int8", "the script's own codec replaces the preset's"
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with session, sluice.LocalSGD(session, model, optimizer, sync_every=3):
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert session.figures().steps == 1


def test_momentum_stays(alone: None) -> None:
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with sluice.init(model, uplink="topk:1%", local_steps=2, quiet=True) as session:
        sluice.tune(optimizer, session)
    assert optimizer.param_groups[0]["momentum"] == 0.9
