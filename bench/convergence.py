#!/usr/bin/env python3
"""Trains a job compressed and `--dense`, seed by seed, and prints how far apart they end.

usage: bench/convergence.py JOB.yaml [--seeds 1,2,3] [--set KEY=VALUE ...] [--points 1] [--nats 0.02] [--json FILE]

Both runs of a pair have equal seeds, data and numbers of steps; the dense one has the rate and momentum of the job's
`baseline` section. Runs go one after the other. A difference is the compressed run's value less the dense one's: of losses
less is better, of accuracies more. With --points or --nats it exits 1 if the mean difference is worse than that.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def train(options, seed, dense):
    """The report of one run."""
    with tempfile.TemporaryDirectory(prefix="convergence-") as folder:
        report, logs = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "logs"
        command = [str(options.bin / "sluice"), "run", options.job, "--quiet", "--http", "off", "--json", str(report),
                   "--log-dir", str(logs)]
        for change in [*options.set, f"seed={seed}"]:
            command += ["--set", change]
        if dense:
            command.append("--dense")
        if options.threads:
            command += ["--threads", str(options.threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}")
        return json.loads(report.read_text())


def differences(pairs):
    """Of losses in nats and of accuracies in points, pair by pair; less loss and more accuracy than dense are better."""
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
    """What is worse than asked for; empty: nothing. What is not a number is worse."""
    nats, points = (mean(values) for values in differences(pairs))
    problems = []
    if options.nats is not None and not nats <= options.nats:
        problems.append(f"the compressed loss is {nats:.4f} nats above the dense one; asked for: at most {options.nats:g}")
    if options.points is not None and not points >= -options.points:
        problems.append(f"the compressed accuracy is {-points:.2f} points below the dense one; asked for: at most "
                        f"{options.points:g}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", metavar="JOB.yaml")
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")],
                        help="of the pairs, with commas between them (default: 1,2,3)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a change of the job, for all runs")
    parser.add_argument("--nats", type=float, help="the most that the mean compressed loss may be above the dense one")
    parser.add_argument("--points", type=float, help="the same of accuracies, below, in points (hundredths)")
    parser.add_argument("--threads", type=int, help="of each worker (default: as `sluice run`)")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin", help="folder of the programs")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all reports to this file")
    options = parser.parse_args()
    print(HEAD, flush=True)
    pairs = []
    for seed in options.seeds:
        pairs.append({"seed": seed, "dense": train(options, seed, dense=True),
                      "compressed": train(options, seed, dense=False)})
        print(row(str(seed), pairs[-1:]), flush=True)
        if options.json:  # After each pair: a run that is broken off leaves what it has.
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
