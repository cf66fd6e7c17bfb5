# SPDX-License-Identifier: Apache-2.0
"""The report of a rank that `sluice run -- COMMAND` has started."""

from __future__ import annotations

import json
import os
import pathlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._sluice import Figures

_TIMES_KEPT = 100_000


def _quantile(times: list[float], share: float) -> float:
    return 1e3 * times[min(int(share * len(times)), len(times) - 1)] if times else 0.0


class RunReport:
    """Measures steps and writes the figures to ``$SLUICE_REPORT``, where the launcher reads them. Does nothing if it is not set."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._path = os.environ.get("SLUICE_REPORT", "")
        self._began: float | None = None
        self._last = 0.0
        self._times: list[float] = []  # Seconds of each step.

    def step(self) -> None:
        """Counts a step that has ended. The first one only starts the clock, because it includes the start of the program."""
        if not self._path:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now
        elif len(self._times) < _TIMES_KEPT:
            self._times.append(now - self._last)
        self._last = now

    def write(self, figures: Figures) -> None:
        if not self._path or figures.steps == 0:
            return
        times = sorted(self._times)
        report = {
            "rank": self._rank,
            "steps": figures.step,
            "exchanged_steps": figures.steps,
            "parameters": figures.dense_bytes // (4 * figures.steps),
            "bytes_up": figures.bytes_up,
            "bytes_down": figures.bytes_down,
            "wall_seconds": self._last - (self._began or 0.0),
            "step_ms_p50": _quantile(times, 0.5),
            "step_ms_p95": _quantile(times, 0.95),
            "wait_ms": 1e3 * figures.exposed_seconds / figures.steps,
            "skipped": figures.skipped_bundles,
            "parameters_sha256": "",
        }
        # A rename, so that a launcher never reads half a report.
        path = pathlib.Path(self._path)
        path.with_suffix(".new").write_text(json.dumps(report))
        path.with_suffix(".new").rename(path)
