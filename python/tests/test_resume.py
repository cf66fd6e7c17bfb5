# SPDX-License-Identifier: Apache-2.0
"""Session.state_dict: a run that ends and goes on in new processes keeps what compression has left out."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
from conftest import Start, await_all
from torch import nn

import sluice


def test_a_run_in_two_parts_ends_like_one_without_interruption(start: Start, tmp_path: pathlib.Path) -> None:
    whole = start("resume.py", "whole", str(tmp_path))
    first = start("resume.py", "first", str(tmp_path))
    await_all(whole + first)
    second = start("resume.py", "second", str(tmp_path))
    forgetful = start("resume.py", "forgetful", str(tmp_path))
    await_all(second + forgetful)
    for rank in range(2):
        # The downlink is lossless, so the shards owe nothing.
        for word in ("parameters", "residual"):
            assert second[rank].await_word(word) == whole[rank].await_word(word)
            assert forgetful[rank].await_word(word) != whole[rank].await_word(word)
        assert second[rank].await_word("step") == 3
    assert whole[0].await_word("residual") != whole[1].await_word("residual")
    assert whole[0].await_word("parameters") == whole[1].await_word("parameters")


# In a process that is alone.


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SLUICE_") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


def new_session(model: nn.Module | None = None, **options: Any) -> sluice.Session:
    options.setdefault("uplink", "topk:5%")
    return sluice.init(model, downlink="none", quiet=True, **options)


def exchange(session: sluice.Session, seed: int) -> torch.Tensor:
    gradient = torch.randn(40, 50, generator=torch.Generator().manual_seed(seed))
    session.submit(0, gradient)
    session.wait()
    mean = torch.empty(40, 50)
    session.apply(0, mean)
    return mean


def linear(outputs: int = 40) -> nn.Module:
    return nn.Linear(50, outputs, bias=False)


def saved_after(steps: int, **options: Any) -> tuple[dict[str, Any], torch.Tensor]:
    """Returns the state after some steps, and the mean of the next step."""
    with new_session(linear(), **options) as session:
        for step in range(steps):
            exchange(session, step)
        return session.state_dict(), exchange(session, steps)


def test_the_residual_is_what_the_means_lack() -> None:
    with new_session(linear()) as session:
        lacking = torch.zeros(40, 50)
        for step in range(4):
            gradient = torch.randn(40, 50, generator=torch.Generator().manual_seed(step))
            lacking += gradient - exchange(session, step)
        residual = session.state_dict()["residual"]
        assert list(residual) == ["weight"]
        assert torch.allclose(residual["weight"], lacking, atol=1e-5)
        assert float(lacking.norm()) > 1


@pytest.mark.parametrize("uplink", ["topk:5%", "topk:5%/dgc:0.5", "sign/ef21"])
@pytest.mark.parametrize("late", [False, True])
def test_a_state_is_loaded_before_or_after_the_session_joins(late: bool, uplink: str) -> None:
    state, expected = saved_after(3, uplink=uplink)
    model = linear()
    with new_session(model if late else None, uplink=uplink) as session:
        session.load_state_dict(state)
        if not late:
            assert "residual" not in session.state_dict()
            session.join(list(model.named_parameters()))
        mean = exchange(session, 3)
    with new_session(model, uplink=uplink) as session:
        fresh = exchange(session, 3)
    # The shards' memory, which ef21 needs on both sides, does not go on.
    assert torch.equal(mean, fresh if "ef21" in uplink else expected)
    assert not torch.equal(fresh, expected)


def test_a_state_from_before_the_residual_changes_nothing() -> None:
    with new_session(linear()) as session:
        session.load_state_dict({"version": 1, "step": 3, "uplink": "topk:5%", "downlink": "none"})
        exchange(session, 0)


def test_another_order_of_strides_is_followed() -> None:
    state, expected = saved_after(3)
    state["residual"]["weight"] = state["residual"]["weight"].t().contiguous().t()
    with new_session(linear()) as session:
        session.load_state_dict(state)
        assert torch.equal(exchange(session, 3), expected)


def broken(state: dict[str, Any], change: str) -> dict[str, Any]:
    residual = state["residual"]
    compressor = state["compressor"].clone()
    if change == "damage":
        compressor[len(compressor) // 2] += 1
    changed: dict[str, dict[str, Any]] = {
        "name": {"residual": {"other": residual["weight"]}},
        "shape": {"residual": {"weight": residual["weight"].t()}},
        "more": {"residual": {**residual, "bias": torch.zeros(40)}},
        "value": {"residual": {"weight": residual["weight"] * float("inf")}},
        "damage": {"compressor": compressor},
        "rank": {"rank": 1, "world_size": 2},
        "version": {"version": 7},
        "uplink": {"uplink": "topk:6%"},
    }
    return {**state, **changed[change]}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("name", "INVALID_ARGUMENT", "the state has other of shape (40, 50), and the session has weight of shape (40, 50)"),
        ("shape", "INVALID_ARGUMENT", "the state has weight of shape (50, 40), and the session has weight of shape (40, 50)"),
        ("more", "INVALID_ARGUMENT", "the state has 2 tensors, and the session has 1"),
        ("value", "INVALID_ARGUMENT", "not finite"),
        ("damage", "DATA_LOSS", "checksum"),
        ("rank", "FAILED_PRECONDITION", "the state is that of rank 1 of 2, and this is rank 0 of 1"),
        ("version", "INVALID_ARGUMENT", "the state has version 7, wanted 1"),
        ("uplink", "FAILED_PRECONDITION", "the state was saved with uplink 'topk:6%', and this job has 'topk:5%'"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change: str, code: str, words: str) -> None:
    state, expected = saved_after(2)
    with new_session(linear()) as session:
        with pytest.raises(sluice.SluiceError) as error:
            session.load_state_dict(broken(state, change))
        assert error.value.code == code
        assert words in str(error.value)
        session.load_state_dict(state)
        assert torch.equal(exchange(session, 2), expected)


def test_the_state_belongs_between_steps_and_before_the_first() -> None:
    state, _ = saved_after(1)
    with new_session(linear()) as session:
        session.submit(0, torch.zeros(40, 50))
        with pytest.raises(sluice.SluiceError, match="step 1 is open"):
            session.state_dict()
        with pytest.raises(sluice.SluiceError, match="step 1 is open"):
            session.load_state_dict(state)
        session.wait()
        with pytest.raises(sluice.SluiceError, match="the session has made a step already"):
            session.load_state_dict(state)
        session.state_dict()
