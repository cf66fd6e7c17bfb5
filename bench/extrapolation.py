#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how well the beginning of a dense run predicts the rest: curves through its first tests against the later tests.

usage: extrapolation.py SCALARS.CSV...

For each run and number of first tests, prints by how many points a curve is above the last test of the run, and its largest
deviations above and below any later test:
  power    accuracy = 100 - b steps^-p: errors vanish in the limit
  free     accuracy = c - b steps^-p, c at most 100: the best fit
  mean     the same, as a mean over p weighted by the quality of each fit
"""
import csv
import math
import sys

FIRST = [4, 6, 8, 10, 12, 16]
EXPONENTS = [0.05 * i for i in range(2, 61)]
NOISE = 0.5  # Points: minimum noise of a test.


def tests_of(path):
    with open(path, newline="") as file:
        return [(int(row["step"]), 100 * float(row["test_accuracy"])) for row in csv.DictReader(file) if row.get("test_accuracy")]


def line(x, y):
    """Slope, offset and sum of squared residuals."""
    n, sum_x, sum_y = len(x), sum(x), sum(y)
    slope = (n * sum(a * b for a, b in zip(x, y)) - sum_x * sum_y) / (n * sum(a * a for a in x) - sum_x**2)
    offset = (sum_y - slope * sum_x) / n
    return slope, offset, sum((offset + slope * a - b)**2 for a, b in zip(x, y))


def power(tests):
    slope, offset, _ = line([math.log(step) for step, _ in tests], [math.log(100 - accuracy) for _, accuracy in tests])
    return lambda step: 100 - math.exp(offset + slope * math.log(step))


def free(tests):
    """The best fit and the weighted mean."""
    fits = []
    for p in EXPONENTS:
        x, y = [step**-p for step, _ in tests], [accuracy for _, accuracy in tests]
        slope, offset, left = line(x, y)
        if offset > 100:
            offset, slope = 100, -sum((100 - b) * a for a, b in zip(x, y)) / sum(a * a for a in x)
            left = sum((offset + slope * a - b)**2 for a, b in zip(x, y))
        fits.append((left, p, offset, slope))
    least = min(fits)[0]
    variance = max(least / max(len(tests) - 3, 1), NOISE**2)
    weights = [math.exp((least - left) / (2 * variance)) for left, *_ in fits]
    def at(fit, step):
        return fit[2] + fit[3] * step**-fit[1]
    return (lambda step: at(min(fits), step),
            lambda step: sum(weight * at(fit, step) for weight, fit in zip(weights, fits)) / sum(weights))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    for path in sys.argv[1:]:
        tests = tests_of(path)
        print(f"{path}: {len(tests)} tests, the last {tests[-1][1]:.2f} %")
        for first in [n for n in FIRST if n < len(tests)]:
            best, mean = free(tests[:first])
            text = f"  {first:2} tests ({100 * tests[first - 1][0] / tests[-1][0]:.0f} % of the run)"
            for name, curve in (("power", power(tests[:first])), ("free", best), ("mean", mean)):
                missed = [curve(step) - accuracy for step, accuracy in tests[first:]]
                text += f"   {name} {missed[-1]:+.2f} ({min(missed):+.2f} to {max(missed):+.2f})"
            print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
