# SPDX-License-Identifier: Apache-2.0
"""Jobs with checkpoints: ranks that are killed come back, and the result is that of a run without a kill, bit for bit."""

from __future__ import annotations

import json
import pathlib
import signal
import sys

import pytest
from conftest import RANKS, Start, await_all
from test_run import Run

# Both directions lose something in each step, and int4 rounds with random numbers.
COMPRESSION = {"uplink": "topk:10%+int4", "downlink": "topk:20%+int4", "min_elements": 8}


def keys(folder: pathlib.Path) -> dict[str, object]:
    return {"compression": COMPRESSION, "checkpoint": {"dir": str(folder), "interval": 4}}


def begin(folder: pathlib.Path, killed: str) -> Run:
    folder.mkdir()
    sets = [word for key, value in keys(folder / "checkpoints").items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [sys.executable, str(RANKS / "checkpointed.py"), killed, str(folder / "checkpoints")]
    return Run(folder, ["--workers", "2", *sets], command)


@pytest.fixture(scope="module")
def undisturbed(start: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the hash of the parameters after a job in which no rank was killed."""
    folder = tmp_path_factory.mktemp("checkpoints") / "checkpoints"
    ranks = start("checkpointed.py", "none", str(folder), json.dumps(keys(folder)))
    await_all(ranks)
    zero, one = (rank.await_word("parameters") for rank in ranks)
    assert zero == one
    parameters: str = zero
    return parameters


@pytest.mark.parametrize("killed", ["1", "01"])
def test_sluice_run_starts_killed_ranks_again(killed: str, undisturbed: str, tmp_path: pathlib.Path) -> None:
    run = begin(tmp_path / killed, killed)
    assert run.await_end() == 0, run.text()
    for rank in (0, 1):
        first, *others = run.said(rank, "restored_step")
        assert first == 0
        assert len(others) == (1 if str(rank) in killed else 0)
        assert all(4 <= step <= 10 for step in others)
        assert run.said(rank, "parameters") == [undisturbed]
    assert sum(run.report()["restarts"].values()) == len(killed)
    run.await_no_process()


def test_a_new_job_goes_on_in_the_same_folder(start: Start, undisturbed: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "checkpoints"
    job = json.dumps(keys(folder))
    for rank in start("checkpointed.py", "01", str(folder), job):
        assert rank.await_end() == -signal.SIGKILL, rank.text()
    ranks = start("checkpointed.py", "01", str(folder), job)
    await_all(ranks)
    for rank in ranks:
        assert rank.await_word("restored_step") >= 4
        assert rank.await_word("parameters") == undisturbed
