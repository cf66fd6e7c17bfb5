# SPDX-License-Identifier: Apache-2.0
"""What a session says about itself: figures, for logs, progress bars and notebooks."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from . import _sluice
from ._buffers import Buffers
from ._errors import SluiceError
from ._figures import Figures, Sink, scalars_of, show_bytes, show_table, sink_of
from ._forecast import Forecast, Meter
from ._log_level import LogLevel
from ._world import World


class Reporting:
    """The part of `Session` that reports. `Session` documents the attributes."""

    rank: int
    world_size: int
    step: int
    status_page: str | None
    _core: _sluice.Session | None
    _job: _sluice.JobSummary
    _last: _sluice.StepResult | None
    _meter: Meter
    _alone: ClassVar[bool]
    _place: World
    _buffers: Buffers
    _sinks: list[tuple[Sink, int, list[Figures]]]

    def _greet(self) -> None:
        page = f", status page {self.status_page}" if self.status_page else ""
        shards = "1 shard" if self._job.shards == 1 else f"{self._job.shards} shards"
        text = f"sluice: {self.world_size} ranks, {shards}, uplink {self._job.uplink}, downlink {self._job.downlink}{page}"
        print(text, file=sys.stderr, flush=True)

    def _live(self) -> _sluice.Session:
        raise NotImplementedError

    def _drain_log(self, core: _sluice.Session | None = None) -> None:
        raise NotImplementedError

    def _say(self, level: LogLevel, text: str) -> None:
        raise NotImplementedError

    def _difference(self) -> str:
        """Names the parameters of which the ranks have different values, for the message of an error."""
        differing = self._buffers.checksums.differing if self._buffers.checksums else ""
        return f" (the ranks have different values of {differing})" if differing else ""

    def _observe(self, core: _sluice.Session) -> None:
        """Says what the step that has ended shows, once."""
        checksums = self._buffers.checksums
        if checksums and checksums.compare(self.world_size) and not checksums.told:
            checksums.told = True
            self._say(
                LogLevel.WARNING,
                f"rank {self.rank}, step {self.step}: the ranks have different values of {checksums.differing}. Only the optimizer may change "
                "parameters, and all ranks must compute the same (this is said once)",
            )
        if self._meter.step(core) and self._place.rank == 0 and not self._alone:
            self._say(LogLevel.INFO, str(self._meter.forecast))

    def end_step(self) -> None:
        """Writes to the sinks of `log_to` that are due. `ddp_hook` calls it after each step."""
        self._drain_log()
        for sink, every, before in self._sinks:
            if self.step % every == 0:
                now = self.figures()
                sink(scalars_of(now, before[0]), self.step)
                before[0] = now

    def figures(self) -> Figures:
        """Returns sums since the session joined. Thread-safe."""
        sums = self._live().figures()
        last = self._last
        return Figures(
            step=self.step,
            steps=sums.steps,
            bytes_up=sums.bytes_up,
            bytes_down=sums.bytes_down,
            dense_bytes=sums.dense_bytes,
            exposed_seconds=sums.exposed_seconds,
            encode_seconds=sums.encode_seconds,
            decode_seconds=sums.decode_seconds,
            contributions_min=last.n_min if last else 0,
            contributions_max=last.n_max if last else 0,
            skipped_bundles=sums.skipped_bundles,
            staleness=last.staleness if last else 0,
            uplink=self._job.uplink,
            downlink=self._job.downlink,
        )

    def forecast(self) -> Forecast | None:
        """Returns what exchanges cost on this link; None before the fourth step. A `LocalSession` counts the codecs' time alone.

        Rank 0 prints it after the fourth step. `sluice doctor` measures a link before a run.
        """
        return self._meter.forecast

    def scalars(self) -> dict[str, float]:
        """Returns means per step since the session joined, under the names of `docs/job-file.md`.

        ``bytes/up`` and ``bytes/down`` are bytes, ``ratio/up`` and ``ratio/down`` say how many times fewer they are than in
        float32, ``time/exposed_ms`` is what the script waited, in milliseconds.
        """
        return scalars_of(self.figures())

    def postfix(self) -> dict[str, str]:
        """Returns figures for a progress bar: ``bar.set_postfix(session.postfix())`` shows ``up=9.2 KiB (98x), wait=4 ms``."""
        scalars = self.scalars()
        return {
            "up": f"{show_bytes(scalars['bytes/up'])} ({scalars['ratio/up']:.0f}x)",
            "wait": f"{scalars['time/exposed_ms']:.0f} ms",
        }

    def _repr_html_(self) -> str:
        """Returns a table for a notebook: rank, step, codecs, traffic and a link to the status page."""
        rows = {"rank": f"{self.rank} of {self.world_size}", "step": str(self.step)}
        if self._core is None:
            rows["state"] = "closed"
        else:
            rows |= {"codecs": f"{self._job.uplink} up, {self._job.downlink} down"} | self.postfix()
            if self._meter.forecast:
                rows["forecast"] = str(self._meter.forecast)
        return show_table(rows, self.status_page if self._core is not None else None)

    def log_to(self, target: Any, every: int = 10) -> None:
        """Writes the scalars of every `every`-th step, as means over the steps in between.

        Args:
            target: A ``SummaryWriter`` of TensorBoard, an object with a method ``log(dict, step=...)`` such as a run of
                Weights & Biases, or a function of (dict, step).
            every: Steps, at least 1.

        Raises:
            SluiceError: `every` is below 1, or the target is none of these.
        """
        if every < 1:
            raise SluiceError(f"log_to: every is {every}, and must be at least 1", code="INVALID_ARGUMENT")
        self._sinks.append((sink_of(target), every, [self.figures()]))
