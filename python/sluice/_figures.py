# SPDX-License-Identifier: Apache-2.0
"""What a session knows of itself, for people, logs and progress bars."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import SluiceError


@dataclasses.dataclass(frozen=True)
class Figures:
    """Sums since the session joined, of this rank. Times are in seconds.

    Attributes:
        step: The last step that ended.
        steps: Steps in which gradients were exchanged.
        bytes_up, bytes_down: Bytes that this rank sent and received.
        dense_bytes: What each direction would have been in float32.
        ratio_up, ratio_down: ``dense_bytes`` divided by the bytes; 0 before the first step.
        exposed_seconds: Time that the script waited for exchanges.
        encode_seconds, decode_seconds: Time for the codecs, partly beside the backward pass.
        contributions_min, contributions_max: The fewest and most ranks that a mean of the last step was divided by.
        skipped_bundles: Parts of gradients that this rank left out, because they were not finite.
        staleness: Updates by other ranks between the parameters and the gradient; 0 in mode `sync`.
        uplink, downlink: Codec specs.
    """

    step: int
    steps: int
    bytes_up: int
    bytes_down: int
    dense_bytes: int
    exposed_seconds: float
    encode_seconds: float
    decode_seconds: float
    contributions_min: int
    contributions_max: int
    skipped_bundles: int
    staleness: int
    uplink: str
    downlink: str

    @property
    def ratio_up(self) -> float:
        return self.dense_bytes / self.bytes_up if self.bytes_up else 0.0

    @property
    def ratio_down(self) -> float:
        return self.dense_bytes / self.bytes_down if self.bytes_down else 0.0


def _per(amount: float, steps: int) -> float:
    return amount / steps if steps else 0.0


def scalars_of(now: Figures, before: Figures | None = None) -> dict[str, float]:
    """Returns the figures under the names that `sluice-worker` writes for TensorBoard, per step since `before`."""
    steps = now.steps - (before.steps if before else 0)
    up = now.bytes_up - (before.bytes_up if before else 0)
    down = now.bytes_down - (before.bytes_down if before else 0)
    dense = now.dense_bytes - (before.dense_bytes if before else 0)
    exposed = now.exposed_seconds - (before.exposed_seconds if before else 0.0)
    return {
        "bytes/up": _per(up, steps),
        "bytes/down": _per(down, steps),
        "ratio/up": dense / up if up else 0.0,
        "ratio/down": dense / down if down else 0.0,
        "time/exposed_ms": 1e3 * _per(exposed, steps),
    }


def show_bytes(amount: float) -> str:
    """Returns a number of bytes for people: ``9.2 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def show_table(rows: Mapping[str, str], page: str | None) -> str:
    """Returns an HTML table with two columns, and a link below it."""
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
    address = html.escape(page or "", quote=True)
    link = f'<a href="{address}">{address}</a>' if address else ""
    return f"<table>{cells}</table>{link}"


Sink = Callable[[Mapping[str, float], int], Any]


def sink_of(target: Any) -> Sink:
    """Returns a function of (scalars, step) for a SummaryWriter, a run of Weights & Biases, or such a function."""
    if hasattr(target, "add_scalar"):

        def write(scalars: Mapping[str, float], step: int) -> None:
            for name, value in scalars.items():
                target.add_scalar(name, value, step)

        return write
    if hasattr(target, "log"):
        return lambda scalars, step: target.log(dict(scalars), step=step)
    if callable(target):
        function: Sink = target
        return function
    raise SluiceError(
        f"log_to takes a SummaryWriter, a run with a method `log`, or a function of (scalars, step), and not {type(target).__name__}",
        code="INVALID_ARGUMENT",
    )
