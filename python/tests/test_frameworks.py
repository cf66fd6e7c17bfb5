# SPDX-License-Identifier: Apache-2.0
"""Callbacks for Lightning and Transformers, and Accelerate, on two ranks. `scripts/test-python.sh --frameworks` installs these packages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest
from conftest import Rank, Start, await_all

FRAMEWORKS = ["lightning", "accelerate", "transformers"]
CALLBACKS = ["lightning", "transformers"]
_started: dict[str, list[Rank]] = {}


def _ranks(start: Start, framework: str) -> list[Rank]:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: scripts/test-python.sh --frameworks installs it")
    if framework not in _started:
        _started[framework] = start("frameworks.py", framework)
    return _started[framework]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_lossless_training_is_that_of_ddp(start: Start, framework: str) -> None:
    for rank in _ranks(start, framework):
        found = rank.await_word("equal")
        assert found["differ"] == []
        assert found["steps"] == (8 if framework == "accelerate" else 16)  # Accelerate accumulates two batches.
        assert not found.get("open", False)


@pytest.mark.parametrize("framework", CALLBACKS)
def test_a_callback_tunes_logs_and_saves(start: Start, framework: str) -> None:
    zero, one = (rank.await_word("trained") for rank in _ranks(start, framework))
    assert zero["sha256"] == one["sha256"]
    for found in (zero, one):
        assert found["momentum"] == 0.5
        assert found["state"] == {"step": 8 if framework == "transformers" else 16, "uplink": "topk:5%+int4"}
    if framework == "lightning":
        assert zero["rate"] == pytest.approx(0.02 * 5 / 4)  # Five times the rate, halved by the scheduler after each epoch.
        header, *rows = zero["logged"].split()
        assert "ratio/up" in header and len(rows) == 4
        assert all(float(row.split(",")[header.split(",").index("ratio/up")]) > 3 for row in rows)
    else:
        assert zero["base"] == pytest.approx([0.1, 0.1])
        assert len(zero["logged"]) == len(zero["losses"]) == 4
        assert all(ratio > 3 for ratio in zero["logged"])


@pytest.mark.parametrize("framework", CALLBACKS)
def test_training_goes_on_from_a_checkpoint(start: Start, framework: str) -> None:
    for rank in _ranks(start, framework):
        found = rank.await_word("resumed")
        assert found["step"] == (16 if framework == "transformers" else 24)
        assert found["momentum"] == 0.5  # It is not lowered twice.
        if framework == "lightning":
            assert found["rate"] == pytest.approx(0.02 * 5 / 8)
        else:
            assert found["base"] == pytest.approx([0.1, 0.1])
        assert "saved with uplink 'topk:5%+int4', and this job has 'int4'" in found["other"], found["other"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_all_checks_end_well(start: Start, framework: str) -> None:
    await_all(_ranks(start, framework))


def test_sluice_alone_imports_no_framework() -> None:
    code = f"import sys, sluice, sluice.compress, torch; sluice.DistributedOptimizer; print([n for n in {FRAMEWORKS} if n in sys.modules])"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
