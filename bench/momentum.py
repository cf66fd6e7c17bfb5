#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with settings tuned for dense, changes only the codecs, and prints how much the momentum table recovers for each.

usage: bench/momentum.py [--seeds 1,2,3,4,5] [--by-hand 1,2] [--cases topk,ternary,adam] [--points 0.5] [--json FILE]

examples/fashion-mnist.yaml with momentum 0.9 and a peak rate of 0.1 (adam: 0.001) in all runs of a seed: dense, each codec with
`optimizer.delayed_momentum: auto`, and, for the seeds of --by-hand, with that key at 0.9, which disables the table.
Runs are sequential. With --json it does not repeat runs that the file contains. With --points P it exits 1 if the mean of
`auto` is below dense by more than P points.
"""
import json
import statistics
import sys

from seed_sweep import ROOT, parser_of, train

JOB = str(ROOT / "examples/fashion-mnist.yaml")
# The example's `baseline` section is for SGD, so the job for Adam replaces it.
OPTIMIZERS = {"sgd": ["optimizer={name: sgd, lr: 0.1, momentum: 0.9, clip_norm: 1}"],
              "adam": ["optimizer={name: adam, lr: 0.001, clip_norm: 1}", "baseline={optimizer: {lr: 0.001}}"]}
# Name: optimizer, codec up, codec down.
CASES = {"topk": ("sgd", "topk:1%+int4", "topk:3%+int4"),
         "ternary": ("sgd", "ternary:0.5", "ternary:0.5"),
         "adam": ("adam", "topk:1%+int4", "topk:3%+int4"),
         "adam-tensor": ("adam", "topk:1%,scope=tensor+int4", "topk:3%,scope=tensor+int4"),
         "adam-ternary": ("adam", "ternary:0.5", "ternary:0.5")}
HEAD = """\
| optimizer | up | down | dense | `auto`, points from dense | by hand 0.9, points from dense | seeds |
|---|---|---|---|---|---|---|"""


def list_of(text):
    return [int(seed) for seed in text.split(",")] if text else []


class Runs:
    """The accuracies by run, from the file and from new runs."""

    def __init__(self, options):
        self.options = options
        self.file = options.json
        self.done = json.loads(self.file.read_text()) if self.file and self.file.exists() else {}

    def accuracy(self, optimizer, up, down, momentum, seed):
        key = f"{optimizer} {up} {down} {momentum} {seed}"
        if key not in self.done:
            changes = [*OPTIMIZERS[optimizer], f"optimizer.delayed_momentum={momentum}", f"compression.uplink={up}",
                       f"compression.downlink={down}"]
            report = train(self.options, JOB, changes, seed, False)
            self.done[key] = {part: report[part] for part in ("test_accuracy", "test_loss", "ratio_up", "ratio_down", "steps")}
            if self.file:
                self.file.write_text(json.dumps(self.done, indent=1) + "\n")
            print(f"{key}: {self.done[key]['test_accuracy']:.2%}", file=sys.stderr, flush=True)
        return self.done[key]["test_accuracy"]


def gap(points):
    if not points:
        return ""
    spread = f" (SD {statistics.stdev(points):.2f})" if len(points) > 1 else ""
    return f"{statistics.mean(points):+.2f}{spread}"


def main():
    parser = parser_of(__doc__)
    parser.set_defaults(seeds=[1, 2, 3, 4, 5])
    parser.add_argument("--by-hand", type=list_of, default=[1, 2], metavar="SEEDS", help="seeds of the runs without the table (default: 1,2)")
    parser.add_argument("--cases", default="topk,ternary,adam", help=f"among {', '.join(CASES)} (default: topk,ternary,adam)")
    options = parser.parse_args()
    cases = options.cases.split(",")
    for name in cases:
        if name not in CASES:
            parser.error(f"--cases: {name} is none of {', '.join(CASES)}")
    runs = Runs(options)
    found = {name: {"dense": [], "auto": [], "hand": []} for name in cases}
    for seed in sorted({*options.seeds, *options.by_hand}):
        for name in cases:
            optimizer, up, down = CASES[name]
            dense = runs.accuracy(optimizer, "none", "none", "auto", seed)
            found[name]["dense"].append(dense)
            if seed in options.seeds:
                found[name]["auto"].append(100 * (runs.accuracy(optimizer, up, down, "auto", seed) - dense))
            if seed in options.by_hand:
                found[name]["hand"].append(100 * (runs.accuracy(optimizer, up, down, "0.9", seed) - dense))
    print(HEAD)
    for name in cases:
        optimizer, up, down = CASES[name]
        print(f"| {optimizer} | `{up}` | `{down}` | {statistics.mean(found[name]['dense']):.2%} | {gap(found[name]['auto'])} | "
              f"{gap(found[name]['hand'])} | {len(found[name]['auto'])}, by hand {len(found[name]['hand'])} |")
    problems = [name for name in cases if options.points is not None and found[name]["auto"]
                and not statistics.mean(found[name]["auto"]) >= -options.points]
    for name in problems:
        print(f"{name}: {-statistics.mean(found[name]['auto']):.2f} points below dense; the limit is {options.points:g}",
              file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
