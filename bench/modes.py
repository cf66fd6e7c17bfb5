#!/usr/bin/env python3
"""Trains one job `--dense` and others as they are, seed by seed, and prints what each mode costs and saves.

usage: bench/modes.py JOB.yaml 'OTHER.yaml [KEY=VALUE ...]' ... [--seeds 1,2,3] [--set KEY=VALUE ...] [--points 1] [--json FILE]

The first job is the reference: it runs with the rate and momentum of its `baseline`. Another is a job file with changes of
its own behind it, in one argument. Equal samples are the caller's to see to: `--set epochs=5` is for all. Runs go one
after the other. With --points it exits 1 if a job's mean accuracy is further than that below the reference's.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def train(options, job, changes, seed, dense):
    """The report of one run."""
    with tempfile.TemporaryDirectory(prefix="modes-") as folder:
        report, logs = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "logs"
        command = [str(options.bin / "sluice"), "run", job, "--quiet", "--http", "off", "--json", str(report), "--log-dir",
                   str(logs)]
        for change in [*options.set, *changes, f"seed={seed}"]:
            command += ["--set", change]
        if dense:
            command.append("--dense")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}")
        return json.loads(report.read_text())


def mean(reports, key):
    return statistics.mean(report[key] for report in reports)


def spread(values, form):
    return f" (SD {statistics.stdev(values):{form}})" if len(values) > 1 else ""


def points_above(reports, reference):
    """Of accuracy, seed by seed."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", metavar="JOB.yaml")
    parser.add_argument("others", nargs="+", metavar="'OTHER.yaml [KEY=VALUE ...]'")
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")],
                        help="with commas between them (default: 1,2,3)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a change of all jobs")
    parser.add_argument("--points", type=float, help="the most that a mean accuracy may be below the reference's")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin", help="folder of the programs")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all reports to this file")
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
        if options.json:  # After each job: a run that is broken off leaves what it has.
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
