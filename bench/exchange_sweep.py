#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how exchanges scale with workers, shards, parameters, density and the number of tensors, over links of one rate.

    ninja -C build/release sluice sluice-server
    bench/exchange_sweep.py --out sweep                    # all axes at 1 Gb/s; a quarter of an hour on two quiet cores
    bench/exchange_sweep.py workers density --rate none --out unshaped
    bench/exchange_sweep.py --from sweep/sweep.json --out sweep        # fit and draw again

Writes sweep.json, sweep.md and a plot (SVG) of each axis with two floors: the bytes of the busiest link at its rate, and
the memory traffic of a sender (12 bytes per element: gradient in, residual in and out) at the speed of this machine's
memory. Fits  time = sum of coefficient x feature  to all points, with non-negative coefficients and relative errors.
bench/README.md explains the output. Needs numpy and matplotlib; scripts/setup.sh installs Debian's packages for
/usr/bin/python3.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import exchange_run
from exchange_run import Failed

try:
    import numpy
except ImportError as error:
    sys.exit(f"exchange_sweep.py: {error}: run scripts/setup.sh, which installs it, and this with /usr/bin/python3")

SENDER_BYTES = 12  # Memory traffic per element of an encoder with feedback.
STREAM_ELEMENTS = 1 << 25


@dataclasses.dataclass(frozen=True)
class Point:
    """One measured configuration. All tensors have the same size."""
    workers: int = 4
    shards: int = 2
    elements: int = 25_000_000
    density: float = 1.0  # Percent of the elements sent up; three times as many go down.
    tensors: int = 25

    def table(self) -> str:
        rows = max(1, round((self.elements / self.tensors) ** 0.5))
        while self.elements // self.tensors % rows:
            rows -= 1
        return "".join(f"t{i} {rows} {self.elements // self.tensors // rows}\n" for i in range(self.tensors))

    def specs(self) -> tuple[str, str]:
        return f"topk:{self.density:g}%+int4", f"topk:{min(100.0, 3 * self.density):g}%+int4"


@dataclasses.dataclass(frozen=True)
class Axis:
    """Points that differ in one quantity."""
    label: str
    values: tuple[float, ...]
    scale: str  # Scale of the plot.
    base: Point = Point()

    def points(self, name: str) -> list[Point]:
        if name == "elements":  # The tensor size stays constant.
            return [dataclasses.replace(self.base, elements=int(v), tensors=int(v) // 1_000_000) for v in self.values]
        return [dataclasses.replace(self.base, **{name: v}) for v in self.values]


AXES = {
    "workers": Axis("workers", (1, 2, 3, 4, 6, 8), "linear"),
    "shards": Axis("shards", (1, 2, 3, 4), "linear"),
    "elements": Axis("elements", (1e6, 3e6, 10e6, 30e6, 100e6), "log"),
    "density": Axis("density up, %; three times as much down", (0.1, 0.3, 1.0, 3.0, 10.0), "log"),
    "tensors": Axis("tensors of 10 M elements in all", (10, 100, 1000, 10_000), "log",
                    Point(workers=2, elements=10_000_000)),
}


# --- Measuring ---

def measure(point: Point, options: argparse.Namespace) -> dict:
    up, down = point.specs()
    with tempfile.TemporaryDirectory() as folder:
        table, path = pathlib.Path(folder) / "table", pathlib.Path(folder) / "exchange.json"
        table.write_text(point.table())
        exchange_run.run([str(exchange_run.HERE / "shaped.sh"), "--workers", str(point.workers), "--shards",
                          str(point.shards), "--rate", options.rate, "--bin", str(options.bin), "--", "--table",
                          str(table), "--spec", up, "--down-spec", down, "--no-baselines", "--repeats",
                          str(options.repeats), "--report", str(path)])
        return json.loads(path.read_text())


def sweep(options: argparse.Namespace) -> dict:
    points = list(dict.fromkeys(point for name in options.names for point in AXES[name].points(name)))
    rows = [{"point": dataclasses.asdict(point), "ms": [], "results": []} for point in points]
    quiet = exchange_run.Quiet()
    for number in range(options.rounds):
        for i in range(len(points))[::-1 if number % 2 else 1]:
            result = measure(points[i], options)
            rows[i]["ms"].append(result["exchange_ms"]["median"])
            rows[i]["results"].append(result)
            print(f"round {number + 1} of {options.rounds}, {points[i]}: {rows[i]['ms'][-1]:.1f} ms", file=sys.stderr)
    return {"machine": {**exchange_run.machine(), "stream_bytes_per_second": stream_rates()}, "rate": options.rate,
            "axes": options.names, "points": rows, **quiet.result()}


def stream_rates() -> dict:
    """Bytes per second moved by the addition of one array to another, with one thread and with one thread per core. Takes the
    best of several tries, because a floor is the machine's limit."""
    def stream(total: numpy.ndarray, other: numpy.ndarray) -> None:
        for _ in range(8):
            numpy.add(total, other, out=total)  # Releases the interpreter's lock.

    rates = {}
    for threads in (1, os.cpu_count() or 1):
        totals, others = ([numpy.ones(STREAM_ELEMENTS, numpy.float32) for _ in range(threads)] for _ in range(2))
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            seconds = []
            for _ in range(6):
                begin = time.monotonic()
                list(pool.map(stream, totals, others))
                seconds.append(time.monotonic() - begin)
            rates[str(threads)] = 8 * threads * 12 * STREAM_ELEMENTS / min(seconds)
    return rates


# --- Fitting ---

FEATURES = {
    "step": ("ms", "a step, whatever is in it"),
    "wire": ("", "of the bytes of the busiest link at its rate (1.046 is what TCP on Ethernet leaves of it)"),
    "elements": ("ms per million", "elements of all workers, divided by the cores"),
    "bytes": ("ms per MB", "moved by all workers, divided by the cores"),
    "tensors": ("ms per thousand", "tensors of all workers, divided by the cores"),
}


def rate_of(swept: dict) -> float | None:
    """Bits per second."""
    if swept["rate"] == "none":
        return None
    number, unit = swept["rate"][:-4], swept["rate"][-4:]
    return float(number) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[unit]


def wire_ms(swept: dict, row: dict) -> float:
    rate = rate_of(swept)
    return 8e3 * row["results"][0]["busiest_link"]["bytes"] / rate if rate else 0.0


def features_of(swept: dict, row: dict) -> dict[str, float]:
    point, cores = row["point"], swept["machine"]["cores"]
    moved = row["results"][0]["bytes_up"] + row["results"][0]["bytes_down"]
    share = point["workers"] / cores  # With a single worker, servers run on the other cores at the same time.
    return {"step": 1.0, "wire": wire_ms(swept, row), "elements": share * point["elements"] * 1e-6,
            "bytes": share * moved * 1e-6, "tensors": share * point["tensors"] * 1e-3}


def fit(swept: dict) -> dict:
    """Coefficients by weighted least squares. Drops features with negative coefficients, the most negative first."""
    times = numpy.array([statistics.median(row["ms"]) for row in swept["points"]])
    table = [features_of(swept, row) for row in swept["points"]]
    names = [name for name in FEATURES if any(row[name] for row in table)]
    while True:
        matrix = numpy.array([[row[name] for name in names] for row in table])
        found = numpy.linalg.lstsq(matrix / times[:, None], numpy.ones(len(times)), rcond=None)[0]
        if found.min() >= 0:
            break
        names.pop(int(found.argmin()))
    errors = numpy.abs(matrix @ found / times - 1)
    return {"coefficients": dict(zip(names, map(float, found))), "error_median": float(numpy.median(errors)),
            "error_max": float(errors.max())}


def fitted_ms(swept: dict, row: dict, fitted: dict) -> float:
    features = features_of(swept, row)
    return sum(value * features[name] for name, value in fitted["coefficients"].items())


def memory_ms(swept: dict, row: dict) -> float:
    """Lower limit of the encoding time from memory speed."""
    point, rates = row["point"], swept["machine"]["stream_bytes_per_second"]
    cores = swept["machine"]["cores"]
    rate = rates["1"] if point["workers"] == 1 else rates[str(cores)] * min(point["workers"], cores) / cores
    return 1e3 * SENDER_BYTES * point["elements"] * point["workers"] / rate


# --- Output ---

def rows_of(swept: dict, name: str) -> list[tuple[float, dict]]:
    by_point = {tuple(row["point"].items()): row for row in swept["points"]}
    found = []
    for value, point in zip(AXES[name].values, AXES[name].points(name)):
        row = by_point.get(tuple(dataclasses.asdict(point).items()))
        if row:
            found.append((value, row))
    return found


def plotter():
    """matplotlib's pyplot, configured so that equal figures give equal files."""
    try:
        import matplotlib
    except ImportError as error:
        raise Failed(f"{error}: run scripts/setup.sh, which installs it, and this with /usr/bin/python3") from None
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sluice"
    from matplotlib import pyplot
    return pyplot


def draw(swept: dict, fitted: dict, name: str, path: pathlib.Path) -> None:
    pyplot = plotter()
    axis, rows = AXES[name], rows_of(swept, name)
    values = [value for value, _ in rows]
    medians = [statistics.median(row["ms"]) for _, row in rows]
    spread = [[m - min(row["ms"]) for m, (_, row) in zip(medians, rows)],
              [max(row["ms"]) - m for m, (_, row) in zip(medians, rows)]]
    figure, plot = pyplot.subplots(figsize=(6, 4))
    plot.errorbar(values, medians, yerr=spread, fmt="o", color="C0", capsize=3, label="measured")
    plot.plot(values, [fitted_ms(swept, row, fitted) for _, row in rows], "-", color="C0", alpha=0.6, label="fitted")
    if rate_of(swept):
        plot.plot(values, [wire_ms(swept, row) for _, row in rows], "--", color="C1", label=f"bytes at {swept['rate']}")
    plot.plot(values, [memory_ms(swept, row) for _, row in rows], ":", color="C2", label="bytes at memory's speed")
    plot.set_xscale(axis.scale)
    if axis.scale == "log":
        plot.set_yscale("log")
    else:
        plot.set_ylim(bottom=0)
    plot.set_xlabel(axis.label)
    plot.set_ylabel("exchange, ms")
    plot.grid(alpha=0.3)
    plot.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def markdown(swept: dict, fitted: dict) -> str:
    facts = swept["machine"]
    links = "links not shaped" if swept["rate"] == "none" else f"links of {swept['rate']}"
    text = (f"{facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}, {links}; others had "
            f"{100 * swept['others']:.0f} % of the processors; load {swept['load']:.1f} at the end\n\n"
            "| coefficient | fitted | of |\n| --- | --- | --- |\n")
    for name, (unit, what) in FEATURES.items():
        if name in fitted["coefficients"]:
            cost = f"{fitted['coefficients'][name]:.3g} {unit}".strip()
            text += f"| {name} | {cost} | {what} |\n"
    text += (f"\nThe fit is off by {100 * fitted['error_median']:.0f} % in the median and by "
             f"{100 * fitted['error_max']:.0f} % at most.\n")
    for name in swept["axes"]:
        text += (f"\n### {name}\n\n| {AXES[name].label} | ms | fitted | at the links' rate | at memory's speed | MB up | "
                 "MB down |\n| --- | --- | --- | --- | --- | --- | --- |\n")
        for value, row in rows_of(swept, name):
            result, wire = row["results"][0], f"{wire_ms(swept, row):.1f}" if rate_of(swept) else "-"
            shown = f"{value:,.0f}" if value >= 1000 else f"{value:g}"
            text += (f"| {shown} | {statistics.median(row['ms']):.1f} ({min(row['ms']):.1f}-{max(row['ms']):.1f}) | "
                     f"{fitted_ms(swept, row, fitted):.1f} | {wire} | {memory_ms(swept, row):.1f} | "
                     f"{result['bytes_up'] * 1e-6:.2f} | {result['bytes_down'] * 1e-6:.2f} |\n")
    return text


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--rate", default="1gbit", help="rate of every link, or none [1gbit]")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE",
                        help="read the figures from this file instead of measuring")
    return exchange_run.parse(parser, "axis", AXES)


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    plotter()  # Fails before the measurements if matplotlib is missing.
    if options.source:
        swept = json.loads(options.source.read_text())
    else:
        exchange_run.check_programs(options)
        swept = sweep(options)
    fitted = fit(swept)
    (options.out / "sweep.json").write_text(json.dumps({**swept, "fit": fitted}, indent=1) + "\n")
    text = markdown(swept, fitted)
    (options.out / "sweep.md").write_text(text)
    for name in swept["axes"]:
        draw(swept, fitted, name, options.out / f"{name}.svg")
    print(text, end="")


if __name__ == "__main__":
    exchange_run.run_program(main)
