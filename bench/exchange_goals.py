#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares exchanges with their goals: Sluice, its own dense runs, PyTorch's DDP and bare TCP over the same links.

    ninja -C build/release sluice sluice-server
    bench/exchange_goals.py                                   # all settings; half an hour on two quiet cores
    bench/exchange_goals.py 2+2 4+2 --rounds 2 --json goals.json --markdown goals.md

In every setting the contestants run in turn, in `--rounds` rounds over the same links. Ratios use values of the same round.
Figures are medians of the rounds, with minimum and maximum. `others` is the share of the machine's processors that other
programs used during the measurement. bench/README.md explains the output.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable

import exchange_run
from exchange_run import Failed

UPLINK, DOWNLINK, TERNARY = "topk:1%+int4", "topk:3%+int4", "ternary:0.5"
DDP_METHODS = ("dense", "bf16", "powersgd1", "powersgd4")
DENSE = ("--warmup", "2", "--repeats", "5", "--no-baselines")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Processes, their links and the contestants."""
    name: str
    workers: int
    shards: int
    rate: str | None  # None selects loopback without links.
    contestants: tuple[str, ...]
    table: str = ""  # Lines of the table. If empty, ResNet-50.
    what: str = "ResNet-50, 25.6 M"


GPT = exchange_run.gpt_like(12, 18_688)
SETTINGS = {each.name: each for each in (
    Setting("2+2", 2, 2, "1gbit", ("topk", "ternary", "fp16", "none", "ddp", "tcp")),
    Setting("4+2", 4, 2, "1gbit", ("topk", "ternary", "fp16", "ddp", "tcp")),
    Setting("8+2", 8, 2, "1gbit", ("topk", "ternary", "fp16", "tcp")),
    Setting("100M", 4, 2, "1gbit", ("topk", "ternary", "fp16", "ddp"), GPT, "GPT-like, 100.2 M"),
    Setting("unshaped 2+2", 2, 2, "none", ("topk", "fp16", "none", "tcp")),
    Setting("unshaped 4+2", 4, 2, "none", ("topk", "fp16", "none", "ddp", "tcp")),
    Setting("small tensors", 2, 2, None, ("topk",), exchange_run.small_tensors(1000, 1000), "1,000 tensors of 1,000"),
)}

Rows = dict[str, dict]  # By name of the measurement.


# --- A turn of one contestant ---

def row_of(result: dict) -> dict:
    cpu = result["cpu_seconds"]
    return {"ms": result["exchange_ms"]["median"], "ms_min": result["exchange_ms"]["min"],
            "bytes_up": result["bytes_up"], "bytes_down": result["bytes_down"], "floor_ms": result.get("floor_ms"),
            "bits_per_second": result["goodput_bits_per_second"], "of_rate": result["goodput_fraction"],
            "cpu_worker": cpu["worker"], "cpu_server": cpu["server"], "cpu_per_gb_workers": cpu["workers_per_gb"],
            "cpu_per_gb_servers": cpu["servers_per_gb"]}


class Turns:
    """The contestants' measurements in a round of a setting."""

    def __init__(self, setting: Setting, options: argparse.Namespace, table: pathlib.Path | None):
        self.setting, self.options = setting, options
        self.table = ["--table", str(table)] if table else []

    def exchange(self, *arguments: str) -> dict:
        return exchange_run.exchange(self.options.bin, self.setting.workers, self.setting.shards, *self.table, *arguments)

    def topk(self) -> Rows:
        codecs = ("--spec", UPLINK, "--down-spec", DOWNLINK, "--no-baselines", "--repeats", str(self.options.repeats))
        alone = row_of(self.exchange(*codecs))
        if self.setting.rate in (None, "none"):
            return {"topk": alone}
        computed = self.exchange(*codecs, "--compute-ms", f"{max(1.0, alone['ms']):.1f}")
        return {"topk": alone, "topk, overlapped": {
            "ms": computed["exposed_ms"], "of_exchange": computed["exposed_ms"] / computed["exchange_ms"]["median"]}}

    def ternary(self) -> Rows:
        return {"ternary": row_of(self.exchange("--spec", TERNARY, "--down-spec", TERNARY, "--no-baselines", "--repeats",
                                                str(self.options.repeats)))}

    def fp16(self) -> Rows:
        return {"fp16": row_of(self.exchange("--spec", "fp16", "--down-spec", "fp16", *DENSE))}

    def none(self) -> Rows:
        return {"none": row_of(self.exchange("--spec", "none", "--down-spec", "none", *DENSE))}

    def ddp(self) -> Rows:
        python = ["--python", self.options.python] if self.options.python else []
        repeats = "3" if self.setting.table else "5"  # The table's large exchanges take seconds.
        result = exchange_run.ddp(self.setting.workers, *self.table, *python, "--repeats", repeats,
                                  *(f"--method={method}" for method in DDP_METHODS))
        return {f"ddp {row['method']}": {"ms": row["exchange_ms"]["median"], "ms_min": row["exchange_ms"]["min"],
                                         "bytes_up": row["bytes_sent"], "cpu_worker": row["cpu_seconds"],
                                         "torch": result["torch"]} for row in result["rows"]}

    def tcp(self) -> Rows:
        return {"tcp": exchange_run.raw_tcp(self.setting.workers, self.setting.shards)}


def measure(setting: Setting, options: argparse.Namespace) -> dict:
    """All rounds of a setting. Runs in the bridge's namespace if there are links."""
    rounds: list[Rows] = []
    failed: dict[str, str] = {}
    quiet = exchange_run.Quiet()
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "table" if setting.table else None
        if table:
            table.write_text(setting.table)
        turns = Turns(setting, options, table)
        for number in range(options.rounds):
            rows: Rows = {}
            for name in setting.contestants[::-1 if number % 2 else 1]:
                print(f"{setting.name}, round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
                try:
                    rows.update(getattr(turns, name)())
                except Failed as error:
                    failed[name] = str(error)
                    print(f"  {error}", file=sys.stderr)
            rounds.append(rows)
    return {"rounds": rounds, "failed": failed, **quiet.result()}


# --- Results ---

@dataclasses.dataclass(frozen=True)
class Figure:
    """The rounds' values of one quantity."""
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, digits: int) -> str:
        if not self.values:
            return "-"
        if len(self.values) == 1:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({min(self.values):.{digits}f}-{max(self.values):.{digits}f})"


def of_rounds(result: dict | None, value: Callable[[Rows], float | None]) -> Figure:
    """Result of `value` for each round, without rounds that lack it."""
    values = []
    for rows in (result or {}).get("rounds", []):
        try:
            found = value(rows)
        except KeyError:
            continue
        if found is not None:
            values.append(found)
    return Figure(tuple(values))


@dataclasses.dataclass(frozen=True)
class Goal:
    setting: str
    what: str
    wanted: float
    at_most: bool
    value: Callable[[Rows], float | None]
    unit: str = ""
    digits: int = 2


def fastest_ddp(rows: Rows) -> float:
    times = [row["ms"] for name, row in rows.items() if name.startswith("ddp ")]
    if not times:
        raise KeyError("ddp")
    return min(times)


def half_ddp(rows: Rows) -> float:
    """Returns the time of DDP with 16 bits: bf16, or fp16 if bf16 is not supported."""
    return (rows.get("ddp bf16") or rows["ddp fp16"])["ms"]


def goals() -> list[Goal]:
    wanted = [Goal(name, f"exchange, `{UPLINK}` up and `{DOWNLINK}` down", ms, True, lambda r: r["topk"]["ms"], " ms", 1)
              for name, ms in (("2+2", 45), ("4+2", 75), ("8+2", 130), ("100M", 300))]
    for name in ("2+2", "4+2"):
        wanted += [Goal(name, "own dense fp16, times as long", 10, False, lambda r: r["fp16"]["ms"] / r["topk"]["ms"], "x", 1),
                   Goal(name, "fastest DDP, times as long", 3, False, lambda r: fastest_ddp(r) / r["topk"]["ms"], "x", 1)]
    return wanted + [
        Goal("2+2", "dense fp32, of the busiest link's rate", 0.9, False, lambda r: r["none"]["of_rate"]),
        Goal("unshaped 2+2", "dense fp32, of bare TCP between the same", 0.7, False,
             lambda r: r["none"]["bits_per_second"] / r["tcp"]["bits_per_second"]),
        Goal("unshaped 4+2", "own dense fp16, of DDP's with 16 bits", 1.25, True, lambda r: r["fp16"]["ms"] / half_ddp(r), "x"),
        Goal("unshaped 2+2", "dense fp32, workers' processor seconds a GB", 0.45, True,
             lambda r: r["none"]["cpu_per_gb_workers"], " s"),
        Goal("unshaped 2+2", "dense fp32, servers' processor seconds a GB", 0.45, True,
             lambda r: r["none"]["cpu_per_gb_servers"], " s"),
        Goal("2+2", "exposed, of an exchange, with as long a backward", 0.35, True,
             lambda r: r["topk, overlapped"]["of_exchange"]),
        Goal("4+2", "exposed, of an exchange, with as long a backward", 0.35, True,
             lambda r: r["topk, overlapped"]["of_exchange"]),
        Goal("small tensors", "exchange over loopback", 10, True, lambda r: r["topk"]["ms"], " ms", 1),
    ]


def judge(results: dict[str, dict]) -> list[dict]:
    """Each goal of the measured settings."""
    judged = []
    for goal in goals():
        if goal.setting not in results:
            continue
        figure = of_rounds(results[goal.setting], goal.value)
        met = None
        if figure.values:
            met = figure.median <= goal.wanted if goal.at_most else figure.median >= goal.wanted
        judged.append({"setting": goal.setting, "what": goal.what, "wanted": goal.wanted, "at_most": goal.at_most,
                       "measured": figure.median if figure.values else None, "values": list(figure.values), "met": met,
                       "text": figure.text(goal.digits) + (goal.unit if figure.values else ""),
                       "wanted_text": f"{'<=' if goal.at_most else '>='} {goal.wanted:g}{goal.unit}"})
    return judged


def table(heads: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads), *lines]) + "\n"


def setting_table(setting: Setting, result: dict) -> str:
    names = list(dict.fromkeys(name for rows in result["rounds"] for name in rows))

    def cell(name: str, key: str, digits: int, scale: float = 1) -> str:
        def value(rows: Rows) -> float | None:
            found = rows[name].get(key)
            return None if found is None else found * scale
        return of_rounds(result, value).text(digits)

    lines = [[name, cell(name, "ms", 1), cell(name, "floor_ms", 1), cell(name, "bytes_up", 2, 1e-6),
              cell(name, "bytes_down", 2, 1e-6), cell(name, "bits_per_second", 3, 1e-9), cell(name, "cpu_worker", 0, 1e3),
              cell(name, "cpu_server", 0, 1e3)] for name in names]
    links = "loopback" if setting.rate is None else "links not shaped" if setting.rate == "none" else f"links of {setting.rate}"
    text = f"\n### {setting.name}: {setting.what}, {setting.workers} workers, {setting.shards} shards, {links}\n\n"
    text += table(["", "ms", "floor, ms", "MB up", "MB down", "busiest link, Gb/s", "CPU ms, a worker", "CPU ms, a server"], lines)
    text += f"\nOthers had {100 * result['others']:.0f} % of the processors; load {result['load']:.1f} at the end.\n"
    versions = {row["torch"] for rows in result["rounds"] for row in rows.values() if "torch" in row}
    if versions:
        text += f"DDP is that of PyTorch {', '.join(sorted(versions))}, on gloo.\n"
    for name, why in result["failed"].items():
        text += f"Not measured in every round: {name}: {why}\n"
    return text


def markdown(results: dict[str, dict], rounds: int) -> str:
    facts = exchange_run.machine()
    text = f"{facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}; medians of {rounds} rounds (least-most)\n\n"
    marks = {True: "met", False: "**not met**", None: "not measured"}
    text += table(["setting", "what", "goal", "measured", ""],
                  [[each["setting"], each["what"], each["wanted_text"], each["text"], marks[each["met"]]]
                   for each in judge(results)])
    return text + "".join(setting_table(SETTINGS[name], result) for name, result in results.items())


# --- The program ---

def measure_over_links(setting: Setting, options: argparse.Namespace) -> dict:
    if setting.rate is None:
        return measure(setting, options)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        command = [sys.executable, __file__, setting.name, "--inside", str(path), "--bin", str(options.bin), "--rounds",
                   str(options.rounds), "--repeats", str(options.repeats)]
        if options.python:
            command += ["--python", options.python]
        exchange_run.over_links(setting.workers, setting.shards, setting.rate, command)
        return json.loads(path.read_text())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="a Python with the PyTorch to compare with")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write the tables to this file")
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)
    return exchange_run.parse(parser, "setting", SETTINGS)


def main() -> None:
    options = parse()
    exchange_run.check_programs(options)
    if options.inside:
        options.inside.write_text(json.dumps(measure(SETTINGS[options.names[0]], options)))
        return
    results: dict[str, dict] = {}
    for name in options.names:
        try:
            results[name] = measure_over_links(SETTINGS[name], options)
        except Failed as error:
            raise Failed(f"{name}: {error}") from None
        if options.json:
            document = {"machine": exchange_run.machine(), "goals": judge(results), "settings": results}
            options.json.write_text(json.dumps(document, indent=2) + "\n")
    text = markdown(results, options.rounds)
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    exchange_run.run_program(main)
