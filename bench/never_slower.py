#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a job that chooses its codecs (`control: {policy: auto}`) is never slower than dense fp16: two jobs over the same links run in turn.

usage: bench/never_slower.py [options]
  --rates R,...      rates of every link (100mbit,1gbit,none; none means not shaped)
  --workers N,...    (2,4,8)
  --parameters N     (1 million)
  --compute MS       sleep per step, in place of an accelerator's work (20)
  --settle N         steps of each job before the measurement (60)
  --pairs N          pairs of turns (9)
  --turn SECONDS     approximate duration of a turn of fp16; at least --steps-min steps (3, 6)
  --limit QUOTIENT   exits 1 if a median exceeds this (1.03)
  --bin FOLDER, --json FILE

The server and each worker have a network namespace behind a link that is shaped in both directions (bench/shaped.sh). Workers are
synthetic_worker: they only encode, send and apply. A row has the median and the quartiles of the pairs' ratios of times, and the last choice
of `auto`. Exits 77 if no links can be made.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import survival
from seed_sweep import ROOT

SHAPED = ROOT / "bench/shaped.sh"


class Job(survival.Job):
    """One shard and the workers, each in the namespace of its link."""

    def __init__(self, options, folder, port, codec, more=""):
        self.host, self.port = os.environ["SHAPED_SERVER_HOSTS"].split(",")[0], port
        self.ranks = int(os.environ["SHAPED_WORKERS"])
        super().__init__(options, folder, options.parameters, shards=1, workers=self.ranks, turns=True, uplink=codec, downlink=codec, more=more)

    def start_shard(self, i):
        command = ["ip", "netns", "exec", f"s{i}", self.options.bin / "sluice-server", "--job", self.path, "--shard", str(i), "--listen",
                   f"{self.host}:{self.port}", "--http-listen", "off", "--allow-anonymous"]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def start_worker(self, rank):
        command = ["ip", "netns", "exec", f"w{rank}", self.options.bin / "synthetic_worker", "--job", self.path, "--coordinator",
                   f"{self.host}:{self.port}", "--rank", str(rank), "--parameters", str(self.parameters), "--steps", "10000000", "--turns",
                   "--compute-ms", str(self.options.compute)]
        return survival.Worker([str(part) for part in command], self.log)

    def plan(self):
        """Number of plans, and the text of the newest one."""
        plans = re.findall(r"plan \d+ from step \d+: .*\((.*)\)$", (self.folder / "log").read_text(), re.M)
        return (len(plans), plans[-1]) if plans else (0, "the job file's codecs")


def row_of(options, folder):
    with Job(options, folder / "auto", 7070, options.first, "control: {policy: auto}\n") as auto, Job(options, folder / "fp16", 7080, "fp16") as dense:
        for job in (auto, dense):
            job.start_workers(job.ranks)
            seconds = survival.turn(job, options.settle)[0]
        each = seconds / options.settle
        steps = max(options.steps_min, round(options.turn / each))
        quotients, times = [], []
        for pair in range(options.pairs):
            took = {job: survival.turn(job, steps)[0] for job in ((auto, dense), (dense, auto))[pair % 2]}
            quotients.append(took[auto] / took[dense])
            times.append(1000 * took[dense] / steps)
        plans, chosen = auto.plan()
        return {"rate": os.environ["SHAPED_RATE"], "workers": auto.ranks, "quotient": survival.quartiles(quotients), "steps": steps,
                "fp16_ms": survival.quartiles(times)[0], "plans": plans, "chosen": chosen, "load": survival.load()}


def parser_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--rates", default="100mbit,1gbit,none")
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--compute", type=float, default=20)
    parser.add_argument("--first", default="topk:1%+int4", help="codec until the links have been measured (default: %(default)s)")
    parser.add_argument("--settle", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--turn", type=float, default=3)
    parser.add_argument("--steps-min", type=int, default=6)
    parser.add_argument("--limit", type=float, default=1.03)
    parser.add_argument("--json", type=pathlib.Path)
    return parser


def main():
    options = parser_of().parse_args()
    options.bin = options.bin.resolve()
    if "SHAPED_RATE" in os.environ:
        with tempfile.TemporaryDirectory(prefix="never-slower-") as folder:
            print(json.dumps(row_of(options, pathlib.Path(folder))))
        return 0
    rows = []
    print("| link | workers | fp16, a step | auto / fp16 | between | plans | chosen |\n|---|---|---|---|---|---|---|", flush=True)
    for rate in options.rates.split(","):
        for workers in options.workers.split(","):
            done = subprocess.run([SHAPED, "--workers", workers, "--shards", "1", "--rate", rate, "--exec", sys.executable, __file__, *sys.argv[1:]],
                                  stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                return done.returncode
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            middle, low, high = row["quotient"]
            print(f"| {rate} | {workers} | {row['fp16_ms']:.0f} ms | {middle:.3f} | {low:.3f} to {high:.3f} | {row['plans']} | {row['chosen']} |",
                  flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    slower = [row for row in rows if row["quotient"][0] > options.limit]
    for row in slower:
        print(f"never_slower.py: {row['rate']}, {row['workers']} workers: more than {options.limit:g}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
