#!/usr/bin/env python3
"""Compares streaming local steps (fragments, fragment_delay) with blocking ones: accuracy, and waiting and traffic on slow links.

usage: bench/streaming.py [--seeds 1,2,3] [--rate 20mbit] [--fragments 4] [--delay 2] [--only accuracy|link] [--json FILE]

`accuracy` trains examples/fashion-mnist-local-sgd.yaml. `link` trains an mlp of a million parameters with int8 and links of `--rate`, for one
seed; `--passes` sets how long its steps take. `waiting` is rank 0's time spent waiting for exchanges, as a part of the run. `fullest second` is the
most traffic of rank 0 within a second, as a part of the blocking run's: about 1 / fragments if an exchange takes less than a second and fragments
are exchanged more than a second apart. With --points, --waiting and --fullest, the program exits with 1 if a goal is missed.
"""
import csv
import json
import pathlib
import statistics
import sys
import tempfile

from seed_sweep import ROOT, parser_of, train

JOB = str(ROOT / "examples/fashion-mnist-local-sgd.yaml")
LINK_JOB = """\
name: streaming-bench
mode: local_sgd
local_steps: 20
outer_optimizer: average
workers: 4
model: {name: mlp, hidden: [1024, 256]}
data: {format: synthetic, limit: 100000, test_limit: 100}
batch_size_per_worker: 64
steps: %d
log_interval: 1
optimizer: {name: sgd, lr: 0.01}
compression: {uplink: int8, downlink: int8}
"""


def fullest_second(rows):
    """The largest traffic of steps that end within one second."""
    sums = [sum(other["bytes"] for other in rows if row["time"] - 1 < other["time"] <= row["time"]) for row in rows]
    return max(sums)


def link_figures(options, changes):
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(LINK_JOB % options.link_steps)
        changes = [*changes, f"output={folder}/out", f"gradient_accumulation_steps={options.passes}"]
        train(options, str(job), changes, options.seeds[0], False, ["--link-rate", options.rate])
        with open(f"{folder}/out/scalars.csv") as file:
            rows = [{"time": float(row["wall_seconds"]), "bytes": float(row["bytes_up"] or 0) + float(row["bytes_down"] or 0),
                     "waited": float(row["exposed_seconds"] or 0)} for row in csv.DictReader(file)]
    rows = rows[20:]  # The first round also has the start.
    seconds = rows[-1]["time"] - rows[0]["time"]
    return {"waiting": sum(row["waited"] for row in rows[1:]) / seconds, "fullest": fullest_second(rows), "step_seconds": seconds / (len(rows) - 1)}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rate", default="20mbit", help="of each link, for `link` (default: 20mbit)")
    parser.add_argument("--fragments", default=4, type=int)
    parser.add_argument("--delay", default=2, type=int, help="fragment_delay, in steps (default: 2)")
    parser.add_argument("--passes", default=16, type=int, help="gradient_accumulation_steps for `link` (default: 16)")
    parser.add_argument("--link-steps", default=160, type=int, help="steps for `link` (default: 160)")
    parser.add_argument("--only", choices=("accuracy", "link"))
    parser.add_argument("--waiting", type=float, help="the most waiting, in percent of the run")
    parser.add_argument("--fullest", type=float, help="the most traffic in a second, in percent of the blocking run's")
    options = parser.parse_args()
    streams = [f"fragments={options.fragments}", f"fragment_delay={options.delay}"]
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    missed = []

    def known(key, measure):
        if key not in done:
            done[key] = measure()
            print(f"{key}: {done[key]}", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(done, indent=1) + "\n")
        return done[key]

    if options.only != "link":
        gaps = []
        for seed in options.seeds:
            blocking, streaming = (known(f"{name}, seed {seed}", lambda: train(options, JOB, changes, seed, False)["test_accuracy"])
                                   for name, changes in (("blocking", []), (" ".join(streams), streams)))
            gaps.append(100 * (streaming - blocking))
            print(f"seed {seed}: blocking {blocking:.2%}, streaming {streaming:.2%}, {gaps[-1]:+.2f} points")
        print(f"mean {statistics.mean(gaps):+.2f} points")
        if options.points is not None and statistics.mean(gaps) < -options.points:
            missed.append(f"streaming is worse by {-statistics.mean(gaps):.2f} points")
    if options.only != "accuracy":
        blocking, streaming = (known(f"{name}, {options.rate}, {options.passes} passes", lambda: link_figures(options, changes))
                               for name, changes in (("blocking", []), (" ".join(streams), streams)))
        fullest = streaming["fullest"] / blocking["fullest"]
        print(f"\n| links of {options.rate} | step | waiting | fullest second |\n|---|---|---|---|")
        for name, found, part in (("blocking", blocking, 1), ("streaming", streaming, fullest)):
            print(f"| {name} | {1000 * found['step_seconds']:.0f} ms | {found['waiting']:.1%} | {found['fullest'] / 1e6:.2f} MB, {part:.0%} |")
        if options.waiting is not None and 100 * streaming["waiting"] > options.waiting:
            missed.append(f"streaming waits for {streaming['waiting']:.1%} of the run")
        if options.fullest is not None and 100 * fullest > options.fullest:
            missed.append(f"the fullest second has {fullest:.0%} of the blocking run's")
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
