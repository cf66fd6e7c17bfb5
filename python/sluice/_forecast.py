# SPDX-License-Identifier: Apache-2.0
"""What exchanges cost on the link of this run, measured in its first steps."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from ._figures import show_bytes

if TYPE_CHECKING:
    from . import _sluice

_FIRST, _LAST = 1, 4  # Step 1 includes the start of the program and of the codecs.
_LITTLE = 0.1


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Means per exchange over steps 2 to 4. Times are in seconds, and include waiting for slower ranks.

    Attributes:
        bytes_up, bytes_down: Bytes that this rank sends and receives.
        wait_seconds: Time that the script waits.
        step_seconds: Time from one exchange to the next.
        bits_per_second: Sent and received bits by the time of waiting. The link may be faster.
        dense_seconds: What the script would wait with both codecs ``none``, at that rate.
    """

    bytes_up: float
    bytes_down: float
    wait_seconds: float
    step_seconds: float
    bits_per_second: float
    dense_seconds: float

    def __str__(self) -> str:
        little = self.dense_seconds < _LITTLE * self.step_seconds
        return (
            f"an exchange sends {show_bytes(self.bytes_up)} and receives {show_bytes(self.bytes_down)}, and the script waits "
            f"{self.wait_seconds:.2g} of {self.step_seconds:.2g} s for it ({self.bits_per_second / 1e6:.3g} Mb/s); `none` would need "
            f"{self.dense_seconds:.2g} s" + (", so compression gains little" if little else "")
        )


class Meter:
    """Measures the first steps."""

    def __init__(self) -> None:
        self.forecast: Forecast | None = None
        self._steps = 0
        self._began: tuple[float, _sluice.Figures] | None = None

    def step(self, core: _sluice.Session) -> bool:
        """Counts a step that has ended. Returns whether the forecast is there now, for the first time."""
        self._steps += 1
        if self._steps == _FIRST:
            self._began = time.monotonic(), core.figures()
        if self._steps != _LAST or self._began is None:
            return False
        began, before = self._began
        now = core.figures()
        self.forecast = forecast_of(before, now, time.monotonic() - began)
        return self.forecast is not None


def forecast_of(before: _sluice.Figures, now: _sluice.Figures, seconds: float) -> Forecast | None:
    """Returns the means between two readings; None if nothing was exchanged."""
    steps = now.steps - before.steps
    up, down = now.bytes_up - before.bytes_up, now.bytes_down - before.bytes_down
    wait = now.exposed_seconds - before.exposed_seconds
    if steps < 1 or up + down < 1 or wait <= 0:
        return None
    dense = 2 * (now.dense_bytes - before.dense_bytes)
    return Forecast(
        bytes_up=up / steps,
        bytes_down=down / steps,
        wait_seconds=wait / steps,
        step_seconds=seconds / steps,
        bits_per_second=8 * (up + down) / wait,
        dense_seconds=wait / steps * dense / (up + down),
    )
