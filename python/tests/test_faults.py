# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is told by name, and leaves no process."""

from __future__ import annotations

import signal

from conftest import Rank, Start, await_that, is_running


def _begin(start: Start, fault: str) -> tuple[list[Rank], list[int]]:
    ranks = start("faults.py", fault)
    shards = ranks[0].await_word("shards")
    assert len(shards) == 1
    assert ranks[1].await_word("shards") == []
    for rank in ranks:
        rank.await_word("running")
    return ranks, shards


def _await_no_process(ranks: list[Rank], shards: list[int]) -> None:
    for rank in ranks:
        rank.await_end()
    for pid in shards:
        await_that(lambda pid=pid: not is_running(pid), f"shard process {pid} ends")


def test_kill_of_the_rank_with_the_shard(start: Start) -> None:
    ranks, shards = _begin(start, "none")
    ranks[0].signal(signal.SIGKILL)
    error = ranks[1].await_word("error")
    assert error.startswith("rank 1, step "), error
    assert "weight" in error or "bias" in error, error
    _await_no_process(ranks, shards)


def test_kill_of_a_rank_whose_child_lives_on(start: Start) -> None:
    ranks, shards = _begin(start, "fork")
    child = ranks[0].await_word("child")
    ranks[0].signal(signal.SIGKILL)
    try:
        _await_no_process(ranks, shards)
        assert is_running(child)
    finally:
        (ranks[0].said.parent / "end").touch()
    await_that(lambda: not is_running(child), "the child ends")


def test_kill_of_another_rank(start: Start) -> None:
    ranks, shards = _begin(start, "lease")
    ranks[1].signal(signal.SIGKILL)
    error = ranks[0].await_word("error")
    assert error.startswith("rank 0, step "), error
    assert "rank 1" in error and "did not report for 3s" in error, error
    _await_no_process(ranks, shards)
    assert ranks[0].process.returncode == 1


def test_an_interrupt_while_a_rank_waits(start: Start) -> None:
    ranks, shards = _begin(start, "wait")
    # Rank 1 waits in its fourth step for rank 0, which sleeps.
    ranks[1].signal(signal.SIGINT)
    assert ranks[1].await_end() != 0
    assert "KeyboardInterrupt" in ranks[1].text()
    ranks[0].signal(signal.SIGINT)
    _await_no_process(ranks, shards)


def test_an_interrupt_is_told_to_the_others(start: Start) -> None:
    ranks, shards = _begin(start, "none")
    ranks[1].signal(signal.SIGINT)
    error = ranks[0].await_word("error")
    assert "rank 1 (" in error and error.endswith("gave up: interrupted by the user"), error
    _await_no_process(ranks, shards)


def test_an_exception_is_told_to_the_others(start: Start) -> None:
    ranks, shards = _begin(start, "raise")
    error = ranks[0].await_word("error")
    assert "rank 1 (" in error and error.endswith("gave up: ValueError: the data of rank 1 is gone"), error
    assert ranks[0].await_word("step") == 4
    _await_no_process(ranks, shards)
    assert "ValueError: the data of rank 1 is gone" in ranks[1].text()


def test_a_sparse_gradient_is_refused_by_name(start: Start) -> None:
    ranks = start("faults.py", "sparse")
    refused = 0
    for rank in ranks:
        error, code = rank.await_word("error"), rank.await_word("code")
        if error.startswith(f"rank {rank.rank}, step 1: the gradient of table.weight is sparse"):
            assert code == "INVALID_ARGUMENT"
            refused += 1
        else:  # The other rank was refused first, and this one learned of that.
            assert "gave up: SluiceError: " in error and "step 1: the gradient of table.weight is sparse" in error, error
    assert refused > 0
    _await_no_process(ranks, ranks[0].await_word("shards"))


def test_an_infinite_gradient_is_left_out_and_told(start: Start) -> None:
    ranks, shards = _begin(start, "infinite")
    assert [rank.await_word("skipped") for rank in ranks] == [0, 2]
    _await_no_process(ranks, shards)
    assert "rank 1, step 3: the gradient of weight is not finite" in ranks[1].text()


def test_a_loss_scaler_sees_a_step_that_overflows_on_all_ranks(start: Start) -> None:
    ranks, shards = _begin(start, "overflow")
    for rank in ranks:
        assert rank.await_word("done")
        assert rank.words("moved") == [True, False, True]
        assert rank.words("scale") == [1024.0, 512.0, 512.0]
    _await_no_process(ranks, shards)
