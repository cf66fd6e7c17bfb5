# SPDX-License-Identifier: Apache-2.0
"""A check that compression does not harm a model: its losses beside those of a reference run."""

from __future__ import annotations

import json
import math
import os
import pathlib
import statistics
import sys
from typing import Any

from ._errors import SluiceError

_ERRORS = 3.0  # Differences below so many standard errors are noise.


class AccuracyGuard:
    """Warns if a run's losses become worse than those of a reference run.

        guard = sluice.AccuracyGuard("losses.json", record=True)   # once, with uplink="none", downlink="none"
        guard = sluice.AccuracyGuard("losses.json")                # later, with the codecs
        ...
        guard.add(loss)                                            # after each step, on rank 0

    A short reference run is enough: the guard compares as long as that lasts. It compares means over `every` steps, and warns
    once if two of them in sequence are worse by more than `tolerance` and by more than the noise, or not finite. It cannot
    tell whether the codecs or another change are the cause, and changes nothing itself.

    Args:
        path: A JSON file with the losses of the reference run.
        record: Whether this is the reference run, which writes the file.
        every: Steps in a mean, at least 2. A guard that compares takes the file's.
        tolerance: How much worse a mean may be, relative to the reference.

    Attributes:
        worse_since: The step from which on the losses are worse; None if they are not.

    Raises:
        SluiceError: The file cannot be read, or `every` is below 2.
    """

    def __init__(self, path: str | os.PathLike[str], *, record: bool = False, every: int = 50, tolerance: float = 0.02) -> None:
        if every < 2:
            raise SluiceError(f"AccuracyGuard: every is {every}, and must be at least 2", code="INVALID_ARGUMENT")
        self.worse_since: int | None = None
        self._path = pathlib.Path(path)
        self._record = record
        self._every = every
        self._tolerance = tolerance
        self._windows: list[tuple[float, float]] = []  # Means and standard errors of the reference run.
        self._open: list[float] = []
        self._done = 0  # Windows of this run.
        self._worse = 0  # Windows in sequence.
        if not record:
            self._read()

    def _read(self) -> None:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text())
            self._every = int(found["every"])
            self._windows = [(float(mean), float(error)) for mean, error in found["windows"]]
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise SluiceError(
                f"AccuracyGuard: {self._path} is not the file of a reference run ({failure}): make it with record=True and uplink=\"none\", "
                "downlink=\"none\"",
                code="NOT_FOUND",
            ) from None

    def add(self, loss: Any) -> bool:
        """Takes the loss of a step.

        Args:
            loss: A number, or a tensor with one element.

        Returns:
            Whether the losses have been as good as those of the reference run so far.
        """
        self._open.append(float(loss))
        if len(self._open) == self._every:
            mean = statistics.fmean(self._open)
            error = statistics.stdev(self._open) / math.sqrt(self._every) if math.isfinite(mean) else 0.0
            self._open.clear()
            self._done += 1
            if self._record:
                self._windows.append((mean, error))
                new = self._path.with_name(self._path.name + ".new")
                new.write_text(json.dumps({"every": self._every, "windows": self._windows}))
                new.replace(self._path)
            elif self._done <= len(self._windows):
                self._compare(mean, error, *self._windows[self._done - 1])
        return self.worse_since is None

    def _compare(self, mean: float, error: float, wanted: float, wanted_error: float) -> None:
        limit = wanted + max(self._tolerance * abs(wanted), _ERRORS * math.hypot(error, wanted_error))
        self._worse = 0 if mean <= limit else self._worse + 1
        if self._worse == 2 and self.worse_since is None:
            end = self._done * self._every
            self.worse_since = end - 2 * self._every + 1
            print(
                f"sluice: WARNING the losses are worse than in the reference run since step {self.worse_since}: over the last {self._every} "
                f"steps the mean is {mean:.4g}, and {wanted:.4g} in {self._path}. If only the codecs differ, choose ones that send more, or "
                "less momentum (docs/choosing-a-codec.md)",
                file=sys.stderr,
                flush=True,
            )
