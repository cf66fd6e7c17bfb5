#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with local steps and compares outer optimizers by their gain, for several numbers of local steps.

usage: bench/outer_step.py [--seeds 1,2,3] [--steps 5,20,80] [--json FILE]

The gain of an outer optimizer is the factor by which it multiplies a lasting change: rate * (1 + momentum / (1 - momentum * rho)), where rho is
the correlation of successive changes. --rho is an assumption that sets the rates (default: 0.56, as published for 16 local steps). Runs are sequential.
With --json, the program does not repeat runs that the file contains.
"""
import json
import statistics
import sys

from seed_sweep import ROOT, parser_of, train

JOB = str(ROOT / "examples/fashion-mnist-local-sgd.yaml")
DENSE = str(ROOT / "examples/fashion-mnist.yaml")  # The same model and data, exchanged in every step.
GAINS = {0.0: (0.7, 1.0, 1.3), 0.5: (1.0, 1.3, 2.0), 0.9: (1.0, 1.3, 2.0)}  # By momentum. Without one, the gain is the rate.


def rate_of(gain, momentum, rho):
    return gain / (1 + momentum / (1 - momentum * rho))


def accuracy(options, done, name, changes, seed, dense=False):
    key = f"{name}, seed {seed}"
    if key not in done:
        report = train(options, DENSE if dense else JOB, changes, seed, dense)
        done[key] = {part: report[part] for part in ("test_accuracy", "test_loss", "steps")}
        print(f"{key}: {done[key]['test_accuracy']:.2%}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(done, indent=1) + "\n")
    return 100 * done[key]["test_accuracy"]


def points(values, dense):
    gaps = [value - base for value, base in zip(values, dense)]
    spread = f" (SD {statistics.stdev(gaps):.2f})" if len(gaps) > 1 else ""
    return f"{statistics.mean(gaps):+.2f}{spread}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--steps", default="5,20,80", type=lambda text: [int(steps) for steps in text.split(",")], help="numbers of local steps")
    parser.add_argument("--rho", default=0.56, type=float)
    options = parser.parse_args()
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    dense = [accuracy(options, done, "dense", [], seed, dense=True) for seed in options.seeds]
    print(f"dense, exchanged in every step: {statistics.mean(dense):.2f} %; the table has differences in points\n")
    print("| momentum | gain | rate | " + " | ".join(f"{steps} local steps" for steps in options.steps) + " |")
    print("|---|---|---|" + "---|" * len(options.steps))
    for momentum, gains in GAINS.items():
        for gain in gains:
            rate = rate_of(gain, momentum, options.rho)
            row = []
            for steps in options.steps:
                changes = [f"local_steps={steps}", f"outer_lr={rate:.4f}"]
                if momentum > 0:
                    changes += ["outer_optimizer=nesterov", f"outer_momentum={momentum}"]
                name = f"{steps} steps, momentum {momentum}, gain {gain}"
                row.append(points([accuracy(options, done, name, changes, seed) for seed in options.seeds], dense))
            print(f"| {momentum} | {gain} | {rate:.3f} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
