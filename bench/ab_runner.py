# SPDX-License-Identifier: Apache-2.0
"""Compares the costs of two jobs of bench/survival.py that run in turn."""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

import survival


def parser_of(doc):
    """Parser with --bin, --parameters, --uplink, --downlink, --steps, --pairs, --limit and --json. A benchmark adds its own options."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=survival.HERE.parent / "build/release/bin")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--uplink", default="topk:1%+int4")
    parser.add_argument("--downlink", default="int8")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--json", type=pathlib.Path)
    return parser


def compare(options, job, other):
    """Additional cost of `job` relative to `other`: quartiles of the pairs' ratios minus 1."""
    for each in (job, other):
        each.start_workers()
    return compare_started(options, job, other)


def compare_started(options, job, other):
    for each in (job, other):
        survival.turn(each, options.steps)  # Warm-up: fills residuals and touches pages.
    wall, cpu, step_ms = [], [], []
    for pair in range(options.pairs):
        of = {each: survival.turn(each, options.steps) for each in ((job, other), (other, job))[pair % 2]}
        wall.append(of[job][0] / of[other][0] - 1)
        cpu.append(of[job][1] / of[other][1] - 1)
        step_ms.append(1000 * of[other][0] / options.steps)
    return {"uplink": options.uplink, "parameters": options.parameters, "time": survival.quartiles(wall),
            "processors": survival.quartiles(cpu), "step_ms": survival.quartiles(step_ms)[0], "load": survival.load()}


def compare_starts(options, jobs):
    """As `compare`, for jobs that are started anew options.starts times. Each of the two `jobs` makes a job in a folder.

    Two equal jobs differ by up to 6 % for as long as they run, because their memory lies elsewhere and because one started first. So
    they start in turns, and `time` and `processors` have the mean of the starts' medians, and the least and the largest median.
    """
    rows = []
    for start in range(options.starts):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            opened = {i: stack.enter_context(jobs[i](pathlib.Path(folder) / str(i))) for i in ((0, 1), (1, 0))[start % 2]}
            for each in opened.values():
                each.start_workers()
            rows.append(compare_started(options, opened[0], opened[1]))
    of_starts = {key: [row[key][0] for row in rows] for key in ("time", "processors")}
    return {**rows[-1], "starts": rows, **{key: (statistics.mean(medians), min(medians), max(medians)) for key, medians in of_starts.items()}}


def conclude(options, row):
    """Prints and writes the row. Ends the program with 1 if it exceeds --limit."""
    print(f"{row['uplink']}, {row['parameters'] / 1e6:g} M parameters, steps of {row['step_ms']:.1f} ms: time "
          f"{survival.percent(row['time'])}, processors {survival.percent(row['processors'])}; load {row['load']:.1f}")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    if options.limit is not None and row["processors"][0] > options.limit / 100:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: more than {options.limit:g} % of processor seconds")
