#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one job with `--dense` and others unchanged, seed by seed, and prints the costs and savings of each mode.

usage: bench/modes.py JOB.yaml 'OTHER.yaml [KEY=VALUE ...]' ... [--seeds 1,2,3] [--set KEY=VALUE ...] [--points 1] [--json FILE]

The first job is the reference: it runs with the rate and momentum of its `baseline`. Each other argument is a job file,
followed by changes for that job. The caller must ensure that all jobs train on equally many samples; `--set epochs=5`
applies to all jobs. Runs are sequential. With --points P it exits 1 if a job's mean accuracy is below the reference's by
more than P points.
"""
import json
import statistics
import sys

from seed_sweep import parser_of, train


def mean(reports, key):
    return statistics.mean(report[key] for report in reports)


def spread(values, form):
    return f" (SD {statistics.stdev(values):{form}})" if len(values) > 1 else ""


def points_above(reports, reference):
    """Differences of accuracy in points, seed by seed."""
    return [100 * (report["test_accuracy"] - other["test_accuracy"])
            for report, other in zip(reports, reference, strict=True)]


HEAD = """\
| job | test accuracy | points above the reference | exchanges | bytes up, down of a step | fewer bytes up, down | staleness | seconds |
|---|---|---|---|---|---|---|---|"""


def row(name, reports, reference):
    accuracies = [100 * report["test_accuracy"] for report in reports]
    points = points_above(reports, reference)
    stale = [report["staleness"] for report in reports]
    cells = [name, f"{statistics.mean(accuracies):.2f} %{spread(accuracies, '.2f')}",
             "" if reports is reference else f"{statistics.mean(points):+.2f}{spread(points, '.2f')}",
             f"{mean(reports, 'rounds'):,.0f}", f"{mean(reports, 'bytes_up'):,.0f}, {mean(reports, 'bytes_down'):,.0f}",
             f"{mean(reports, 'ratio_up'):,.0f}x, {mean(reports, 'ratio_down'):,.0f}x",
             "" if None in stale else f"{statistics.mean(stale):.2f}", f"{mean(reports, 'wall_seconds'):.0f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("reference", metavar="JOB.yaml")
    parser.add_argument("others", nargs="+", metavar="'OTHER.yaml [KEY=VALUE ...]'")
    options = parser.parse_args()
    print(HEAD, flush=True)
    reference = [train(options, options.reference, [], seed, dense=True) for seed in options.seeds]
    print(row(f"{reference[0]['job']}, dense", reference, reference), flush=True)
    everything, problems = {options.reference: reference}, []
    for other in options.others:
        job, *changes = other.split()
        reports = [train(options, job, changes, seed, dense=False) for seed in options.seeds]
        print(row(" ".join([f"{reports[0]['job']}, {reports[0]['mode']}", *changes]), reports, reference), flush=True)
        everything[other] = reports
        if options.json:  # After each job, so that an interrupted run keeps its results.
            options.json.write_text(json.dumps(everything, indent=2) + "\n")
        below = -statistics.mean(points_above(reports, reference))
        if options.points is not None and not below <= options.points:
            problems.append(f"{other} ends {below:.2f} points below {options.reference}; asked for: at most {options.points:g}")
    last = reference[-1]
    print(f"\n{len(options.seeds)} seeds, {last['steps']} steps, {last['workers']} workers, {last['shards']} shards, "
          f"{last['parameters']:,} parameters; bytes are a worker's.")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
