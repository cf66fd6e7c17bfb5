# SPDX-License-Identifier: Apache-2.0
"""A job with a guard, one rank of which sends gradients that are too large or have the wrong sign."""

from __future__ import annotations

from conftest import Start, await_all


def _loss(start: Start, factor: str, policy: str, suspect: str) -> float:
    ranks = start("guarded.py", factor, policy, size=4)
    if suspect:
        assert ranks[0].await_word("suspects") == {"2": suspect}
        assert any("the contributions of worker 2" in text for text in ranks[0].await_word("warnings"))
    await_all(ranks)
    return float(ranks[0].await_word("loss"))


def test_a_large_gradient_does_not_move_the_model(start: Start) -> None:
    good = _loss(start, "1", "skip", "")
    assert _loss(start, "10000", "skip", "outlier") < 2 * good
    assert _loss(start, "10000", "clip", "outlier") < 2 * good
    assert not _loss(start, "10000", "warn", "outlier") < 100 * good


def test_a_rank_with_flipped_signs_is_named_and_left_out(start: Start) -> None:
    good = _loss(start, "1", "skip", "")
    assert _loss(start, "-1", "skip", "opposes") < 2 * good
