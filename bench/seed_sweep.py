# SPDX-License-Identifier: Apache-2.0
"""The common flags of benchmarks that train a job seed by seed."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parser_of(doc):
    """Parser with --bin, --seeds, --set, --points and --json. A benchmark adds the job and its own options."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")],
                        help="separated by commas (default: 1,2,3)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a change of the job, for all runs")
    parser.add_argument("--points", type=float, help="exit with 1 if the mean accuracy is lower by more than this, in points")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures to this file")
    return parser


def train(options, job, changes, seed, dense, more=()):
    """Report of one run of `job`, with the flags in `more`. Ends the program if the run fails."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        report, logs = pathlib.Path(folder) / "report.json", pathlib.Path(folder) / "logs"
        command = [str(options.bin / "sluice"), "run", job, "--quiet", "--http-listen", "off", "--report", str(report), "--log-dir",
                   str(logs), *more]
        for change in [*options.set, *changes, f"seed={seed}"]:
            command += ["--set", change]
        if dense:
            command.append("--dense")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}")
        return json.loads(report.read_text())
