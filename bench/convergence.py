#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a job compressed and with `--dense`, seed by seed, and prints the difference between the results.

usage: bench/convergence.py JOB.yaml [--seeds 1,2,3] [--set KEY=VALUE ...] [--points 1] [--nats 0.02] [--json FILE]

Both runs of a pair have equal seeds, data and numbers of steps. The dense run uses the rate and momentum of the job's
`baseline` section. Runs are sequential. A difference is the compressed run's value minus the dense run's: lower is better
for losses, higher is better for accuracies. With --points or --nats it exits 1 if the mean difference is worse than this limit.
"""
import json
import statistics
import sys

from seed_sweep import parser_of, train


def differences(pairs):
    """Differences of losses in nats and of accuracies in points, pair by pair. Lower loss and higher accuracy than dense are better."""
    return ([pair["compressed"]["test_loss"] - pair["dense"]["test_loss"] for pair in pairs],
            [100 * (pair["compressed"]["test_accuracy"] - pair["dense"]["test_accuracy"]) for pair in pairs])


def mean(values):
    return statistics.mean(values) if values else float("nan")


def spread(values):
    return f" (SD {statistics.stdev(values):.{3 if max(map(abs, values)) < 1 else 2}f})" if len(values) > 1 else ""


HEAD = """\
| seed | test loss dense | compressed | difference | test accuracy dense | compressed | points | bytes up dense | compressed | bytes down dense | compressed |
|---|---|---|---|---|---|---|---|---|---|---|"""


def row(name, pairs):
    def value(kind, key):
        return mean([pair[kind][key] for pair in pairs])

    def size(kind, key, ratio):
        text = f"{value(kind, key):,.0f}"
        return text if kind == "dense" else f"{text}, {value(kind, ratio):.0f}x fewer"

    nats, points = differences(pairs)
    cells = [name, f"{value('dense', 'test_loss'):.4f}", f"{value('compressed', 'test_loss'):.4f}",
             f"{mean(nats):+.4f}{spread(nats)}", f"{value('dense', 'test_accuracy'):.2%}",
             f"{value('compressed', 'test_accuracy'):.2%}", f"{mean(points):+.2f}{spread(points)}"]
    for key, ratio in (("bytes_up", "ratio_up"), ("bytes_down", "ratio_down")):
        cells += [size("dense", key, ratio), size("compressed", key, ratio)]
    return "| " + " | ".join(cells) + " |"


def verdict(options, pairs):
    """Violated limits, or an empty text. NaN violates every limit."""
    nats, points = (mean(values) for values in differences(pairs))
    problems = []
    if options.nats is not None and not nats <= options.nats:
        problems.append(f"the compressed loss is {nats:.4f} nats above the dense one; asked for: at most {options.nats:g}")
    if options.points is not None and not points >= -options.points:
        problems.append(f"the compressed accuracy is {-points:.2f} points below the dense one; asked for: at most "
                        f"{options.points:g}")
    return problems


def main():
    parser = parser_of(__doc__)
    parser.add_argument("job", metavar="JOB.yaml")
    parser.add_argument("--nats", type=float, help="exit with 1 if the mean compressed loss exceeds the dense loss by more than this")
    parser.add_argument("--threads", type=int, help="threads of each worker (default: that of `sluice run`)")
    options = parser.parse_args()
    threads = ["--threads", str(options.threads)] if options.threads else []
    print(HEAD, flush=True)
    pairs = []
    for seed in options.seeds:
        pairs.append({"seed": seed, "dense": train(options, options.job, [], seed, True, threads),
                      "compressed": train(options, options.job, [], seed, False, threads)})
        print(row(str(seed), pairs[-1:]), flush=True)
        if options.json:  # After each pair, so that an interrupted run keeps its results.
            options.json.write_text(json.dumps({"job": options.job, "set": options.set, "pairs": pairs}, indent=2) + "\n")
    if len(pairs) > 1:
        print(row("mean", pairs))
    ended = pairs[-1]
    print(f"\n{ended['compressed']['steps']} steps, {ended['compressed']['workers']} workers, {ended['compressed']['shards']} "
          f"shards, {ended['compressed']['parameters']:,} parameters; bytes are a worker's of one step.")
    problems = verdict(options, pairs)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
