#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `sluice estimate` with measured exchanges over shaped links.

    ninja -C build/release sluice sluice-server
    bench/planning_check.py --out check              # 20 configurations; needs root
    bench/planning_check.py --out check --quick      # 3 of them
    bench/planning_check.py --out fit --set fit      # the configurations to which the model's constants were fitted
    bench/planning_check.py --out grid --grid        # on six links, the recommended choice against the best of a grid

Measures this machine first (`sluice estimate --calibrate`), because all processes share it; --figures FILE uses other
figures. Results are kept in DIR, so an interrupted check continues. The two sets have no configuration in common. Do not
fit the model to the set `check`. Exits with 1 if an error exceeds --limit, or a choice --slower.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile

import exchange_run
from exchange_run import Failed

TOPK = ("topk:1%+int4", "topk:3%+int4")
TENSOR = 1_000_000  # Elements of each tensor, as `sluice estimate --parameters` assumes.


@dataclasses.dataclass(frozen=True)
class Point:
    """One configuration."""
    workers: int
    shards: int
    millions: int  # Elements.
    up: str
    down: str
    rate: int  # Mb/s; 0: not shaped.
    delay: float = 0  # ms, one way.
    compute: float = 0  # ms over which gradients become ready; workers sleep.

    @property
    def name(self) -> str:
        link = f"{self.rate} Mb/s" if self.rate else "unshaped"
        return (f"{self.workers}+{self.shards}, {self.millions} M, {self.up} / {self.down}, {link}, {self.delay:g} ms, "
                f"compute {self.compute:g} ms")

    @property
    def burst(self) -> int:
        """Bytes that a bucket of bench/shaped.sh passes at once."""
        return max(256 << 10, round(self.rate * 1e6 / 8 * 0.002)) if self.rate else 0

    @property
    def floor_ms(self) -> float:
        """Time of a worker's contribution at the links' rate."""
        bits = {"none": 32, "fp16": 16, "int8": 8, "int4": 4}.get(self.up, 0)
        bytes_up = self.millions * 1e6 * bits / 8 * max(1, self.workers / self.shards)
        return max(0.0, bytes_up - self.burst) * 8e-3 / self.rate if self.rate else 0.0


SETS = {
    # The constants of the model come from these.
    "fit": (
        Point(1, 1, 1, *TOPK, 0),
        Point(2, 1, 4, "fp16", "fp16", 100),
        Point(2, 2, 25, *TOPK, 1000),
        Point(4, 1, 10, "int8", "int8", 200),
        Point(4, 2, 25, *TOPK, 50),
        Point(4, 2, 10, "ternary:0.5", "ternary:0.5", 100),
        Point(2, 2, 10, "int4", "int4", 50, 0, 300),
        Point(8, 2, 10, *TOPK, 100),
        Point(4, 4, 8, "none", "none", 400),
        Point(3, 1, 20, *TOPK, 30, 0, 200),
        Point(2, 1, 10, "topk:10%+int4", "topk:10%+int4", 50),
        Point(6, 3, 12, "fp16", "fp16", 300),
        Point(2, 1, 4, "int8", "int8", 100, 40),
        Point(2, 2, 10, *TOPK, 100, 30),
        Point(4, 1, 2, "int4", "int4", 50, 10),
        Point(2, 1, 2, "fp16", "fp16", 200, 20, 100),
    ),
    # The held-out set: the model was complete before these times were measured.
    "check": (
        Point(2, 1, 8, *TOPK, 20),
        Point(4, 2, 8, "int8", "int8", 200),
        Point(4, 1, 3, "fp16", "fp16", 100),
        Point(2, 2, 20, "fp16", "fp16", 800),
        Point(3, 2, 5, "none", "none", 200),
        Point(8, 2, 12, *TOPK, 30),
        Point(4, 2, 20, "ternary:0.5", "ternary:0.5", 30),
        Point(2, 1, 40, *TOPK, 50),
        Point(4, 4, 16, "int4", "int4", 50),
        Point(8, 1, 3, "int8", "int8", 200),
        Point(2, 2, 8, "int4", "int4", 50, 0, 400),
        Point(4, 2, 12, *TOPK, 20, 0, 200),
        Point(4, 1, 6, "topk:5%+int4", "topk:5%+int4", 30, 0, 100),
        Point(6, 2, 8, "ternary:0.7", "ternary:0.7", 20),
        Point(2, 1, 20, *TOPK, 50, 20),
        Point(4, 2, 6, "int8", "int8", 100, 15),
        Point(2, 2, 8, "int4", "int8", 50, 50),
        Point(3, 1, 3, "fp16", "fp16", 100, 5, 100),
        Point(4, 2, 16, *TOPK, 1000),
        Point(8, 4, 8, *TOPK, 100, 0, 150),
    ),
}
QUICK = (1, 9, 16)
LINKS = (20, 50, 100, 200, 500, 1000)  # Mb/s
GRID_CODECS = (TOPK, ("ternary:0.5",) * 2, ("int4",) * 2, ("int8",) * 2, ("fp16",) * 2)
GRID = Point(2, 1, 4, "", "", 0, 0, 100)


# --- Measuring and estimating ---

class Records:
    """The measured runs of each configuration, in a file. The middle run counts: in a few runs, TCP loses its first packets in most steps."""

    def __init__(self, path: pathlib.Path, options: argparse.Namespace):
        self.path, self.options = path, options
        self.rows: dict[str, list[dict]] = {}
        if path.exists() and not options.again:
            self.rows = json.loads(path.read_text())

    def of(self, point: Point) -> dict:
        runs = self.rows.setdefault(point.name, [])
        while len(runs) < self.options.runs:
            quiet = exchange_run.Quiet()
            result = measure(point, self.options)
            runs.append({"exchange_ms": result["exchange_ms"]["median"], "fastest_ms": result["exchange_ms"]["min"],
                         "exposed_ms": result["exposed_ms"], "bytes_up": result["bytes_up"], "bytes_down": result["bytes_down"],
                         "others": quiet.result()["others"]})
            self.path.write_text(json.dumps(self.rows, indent=1) + "\n")
            print(f"{point.name}: {step_ms_of(runs[-1], point):.1f} ms", file=sys.stderr, flush=True)
        return sorted(runs, key=lambda run: step_ms_of(run, point))[len(runs) // 2]

    def step_ms(self, point: Point) -> float:
        return step_ms_of(self.of(point), point)


def step_ms_of(run: dict, point: Point) -> float:
    return point.compute + run["exposed_ms"] if point.compute else run["exchange_ms"]


def table_of(millions: int) -> str:
    return "".join(f"t{i} 1000 1000\n" for i in range(millions))


def measure(point: Point, options: argparse.Namespace) -> dict:
    is_dense = point.up in ("none", "fp16", "int8", "int4")  # Their traffic is steady from the start, but slow.
    with tempfile.TemporaryDirectory() as folder:
        table, report = pathlib.Path(folder) / "table", pathlib.Path(folder) / "exchange.json"
        table.write_text(table_of(point.millions))
        exchange_run.run([
            str(exchange_run.HERE / "shaped.sh"), "--workers", str(point.workers), "--shards", str(point.shards), "--rate",
            f"{point.rate}mbit" if point.rate else "none", "--delay", f"{point.delay:g}ms", "--bin", str(options.bin), "--",
            "--table", str(table), "--spec", point.up, "--down-spec", point.down, "--no-baselines", "--warmup",
            "2" if is_dense else "20", "--repeats", "5" if is_dense else "15", "--compute-ms", f"{point.compute:g}",
            "--report", str(report)])
        return json.loads(report.read_text())


def estimate(point: Point, options: argparse.Namespace, *arguments: str) -> dict:
    """The JSON of `sluice estimate` for processes that share this machine."""
    command = [str(options.bin / "sluice"), "estimate", "--parameters", str(point.millions * TENSOR), "--workers",
               str(point.workers), "--placement", "one-machine", "--link-rate", f"{point.rate or 100_000}mbit", "--latency",
               f"{point.delay:g}ms", "--burst", str(point.burst), "--compute-ms", f"{point.compute:g}", "--overlap", "1",
               "--no-local-steps", "--json", "--figures", str(options.figures), *arguments]
    return json.loads(exchange_run.run(command))


def estimated_ms(point: Point, options: argparse.Namespace) -> float:
    given = ("--shards", str(point.shards), "--spec", point.up, "--down-spec", point.down)
    return estimate(point, options, *given)["estimates"][0]["step_ms"]


# --- The two checks ---

def check(options: argparse.Namespace) -> bool:
    records = Records(options.out / "measured.json", options)
    points = SETS[options.set]
    if options.quick:
        points = tuple(points[i] for i in QUICK)
    errors = []
    print("| configuration | measured, ms | fastest exchange | estimated, ms | error | others |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for point in points:
        measured, estimated = records.step_ms(point), estimated_ms(point, options)
        errors.append(estimated / measured - 1)
        row = records.of(point)
        print(f"| {point.name} | {measured:.1f} | {row['fastest_ms']:.1f} | {estimated:.1f} | {100 * errors[-1]:+.1f} % | "
              f"{100 * row['others']:.0f} % |", flush=True)
    sizes = [abs(error) for error in errors]
    print(f"\nThe error of {len(points)} configurations (set {options.set}) is {100 * statistics.median(sizes):.1f} % in the median "
          f"and {100 * max(sizes):.1f} % at most. `others` is the processors' share of other programs.")
    return max(sizes) <= options.limit / 100


def grid(options: argparse.Namespace) -> bool:
    records = Records(options.out / "grid.json", options)
    slowdowns = []
    print("| link | recommended | its step, ms | best of the grid | its step, ms | slower |\n| --- | --- | --- | --- | --- | --- |")
    for rate in LINKS[:1] if options.quick else LINKS:
        link = dataclasses.replace(GRID, rate=rate)
        found = estimate(link, options)
        choice = found["estimates"][found["recommended"]]
        chosen = dataclasses.replace(link, shards=choice["shards"], up=choice["codec_up"], down=choice["codec_down"])
        best = chosen
        for up, down in GRID_CODECS:
            for shards in (1, 2):
                point = dataclasses.replace(link, shards=shards, up=up, down=down)
                if point.floor_ms > records.step_ms(best):
                    continue  # Its bytes alone take longer.
                if records.step_ms(point) < records.step_ms(best):
                    best = point
        slowdowns.append(records.step_ms(chosen) / records.step_ms(best) - 1)
        print(f"| {rate} Mb/s | {chosen.up} / {chosen.down}, {chosen.shards} | {records.step_ms(chosen):.1f} | {best.up} / {best.down}, "
              f"{best.shards} | {records.step_ms(best):.1f} | {100 * slowdowns[-1]:.1f} % |", flush=True)
    print(f"\nThe recommended choice is at most {100 * max(slowdowns):.1f} % slower than the best.")
    return max(slowdowns) <= options.slower / 100


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="folder of the results")
    parser.add_argument("--set", choices=SETS, default="check", help="configurations [check]")
    parser.add_argument("--quick", action="store_true", help="3 configurations, or one link of the grid")
    parser.add_argument("--grid", action="store_true", help="check recommendations on six links instead")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each configuration, of which the middle one counts [3]")
    parser.add_argument("--again", action="store_true", help="measure again")
    parser.add_argument("--figures", type=pathlib.Path, metavar="FILE", help="figures of `sluice estimate --calibrate`")
    parser.add_argument("--limit", type=float, default=15, metavar="PERCENT", help="largest error [15]")
    parser.add_argument("--slower", type=float, default=10, metavar="PERCENT", help="largest loss of a choice [10]")
    parser.add_argument("--bin", type=pathlib.Path, default=exchange_run.HERE.parent / "build/release/bin", metavar="DIR",
                        help="folder of sluice and sluice-server [build/release/bin]")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    return options


def main() -> None:
    options = parse()
    exchange_run.check_programs(options)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.figures is None:
        options.figures = options.out / "figures.json"
        if options.again or not options.figures.exists():
            table = options.out / "table"
            table.write_text(table_of(8))
            exchange_run.run([str(options.bin / "sluice"), "estimate", "--calibrate", str(options.figures), "--table", str(table)])
    if not (grid if options.grid else check)(options):
        sys.exit(1)


if __name__ == "__main__":
    exchange_run.run_program(main)
