#!/usr/bin/env python3
"""Prints the pairs that bench/accuracy.sh made; exits 1 if the mean gap is over the promise of 0.5 points.

usage: accuracy_report.py FOLDER [--last]    --last: only the newest pair, no verdict
"""
import json
import pathlib
import statistics
import sys

GAP_MAX = 0.5  # Points of test accuracy, mean over the pairs.


def main():
    folder = pathlib.Path(sys.argv[1])
    pairs = []
    for path in sorted(folder.glob("compressed-*.json"), key=lambda p: int(p.stem.split("-")[1])):
        seed = path.stem.split("-")[1]
        pairs.append((seed, json.loads((folder / f"dense-{seed}.json").read_text()), json.loads(path.read_text())))
    shown = pairs[-1:] if "--last" in sys.argv else pairs
    for seed, dense, compressed in shown:
        print(f"seed {seed}: dense {dense['test_accuracy']:.2%}  compressed {compressed['test_accuracy']:.2%}  "
              f"gap {100 * (dense['test_accuracy'] - compressed['test_accuracy']):+.2f} points  "
              f"steps {dense['steps']}/{compressed['steps']}  up {compressed['ratio_up']:.0f}x  down {compressed['ratio_down']:.0f}x",
              flush=True)
    if "--last" in sys.argv:
        return 0
    gaps = [100 * (dense["test_accuracy"] - compressed["test_accuracy"]) for _, dense, compressed in pairs]
    spread = statistics.stdev(gaps) if len(gaps) > 1 else 0.0
    mean = statistics.mean(gaps)
    print(f"mean gap over {len(gaps)} pairs: {mean:+.2f} points (SD {spread:.2f}); promised: at most {GAP_MAX}")
    return 0 if mean <= GAP_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
