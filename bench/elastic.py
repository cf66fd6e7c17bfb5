#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the accuracy that elastic membership costs, seed by seed. In a job of four workers, two workers are killed after a
third of the steps and restarted after two thirds. The benchmark compares this job with the same job without interruption.

JOB.yaml: examples/fashion-mnist.yaml. While two workers are absent, a step has half of the samples, so the disturbed job sees
five sixths of the samples. With --points P it exits 1 if the disturbed job's mean accuracy is lower by more than P points.
"""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from processes import free_port  # noqa: E402
from seed_sweep import ROOT, parser_of  # noqa: E402

WORKERS, LEAVERS, SHARDS = 4, (2, 3), 2
LIMIT = 1800  # Seconds per run.


class Run:
    def __init__(self, options, folder, seed):
        self.options, self.folder = options, pathlib.Path(folder)
        self.settings = [*options.set, "membership=elastic", f"workers={WORKERS}", "min_workers=1",
                         f"shards={SHARDS}", f"steps={options.steps}", f"seed={seed}", "server.lease_timeout=1s", "server.heartbeat_interval=250ms",
                         f"checkpoint={{dir: {folder}/checkpoints, interval: 100}}"]
        self.ports, self.http = [free_port() for _ in range(SHARDS)], free_port()
        self.log = open(self.folder / "log", "a")
        self.processes = {}
        for shard in range(SHARDS):
            self.start("server", shard, "--shard", str(shard), "--listen", f"127.0.0.1:{self.ports[shard]}", "--http-listen",
                       f"127.0.0.1:{self.http}" if shard == 0 else "off")
        for rank in range(WORKERS):
            self.start_worker(rank)

    def start(self, kind, number, *arguments):
        command = [str(self.options.bin / f"sluice-{kind}"), "--job", self.options.job, "--coordinator",
                   f"127.0.0.1:{self.ports[0]}", *arguments]
        for setting in self.settings:
            command += ["--set", setting]
        self.processes[kind, number] = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def start_worker(self, rank):
        self.start("worker", rank, "--rank", str(rank), "--report", str(self.folder / f"{rank}.json"))

    def step(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0
        return max([float(line.split()[-1]) for line in lines if line.startswith("sluice_step{")], default=0)

    def wait_for(self, step):
        end = time.monotonic() + LIMIT
        while self.step() < step:
            if time.monotonic() > end or any(process.poll() for process in self.processes.values()):
                self.fail(f"step {step} was not reached")
            time.sleep(0.05)

    def fail(self, what):
        self.end()
        sys.exit(f"{what}\n{(self.folder / 'log').read_text()[-3000:]}")

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def report(self):
        """Report of rank 0 after the end. Checks that all ranks have the same parameters."""
        for key, process in self.processes.items():
            if process.wait(LIMIT) != 0:
                self.fail(f"{key} failed")
        reports = [json.loads((self.folder / f"{rank}.json").read_text()) for rank in range(WORKERS)]
        if len({report["parameters_sha256"] for report in reports}) != 1:
            self.fail("the workers ended with different parameters")
        return reports[0]

    def members(self):
        """Number of members after each change since the start."""
        return [int(n) for n in re.findall(r"the job continues with (\d+) workers", (self.folder / "log").read_text())]


def train(options, seed, disturbed):
    with tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        run = Run(options, folder, seed)
        if disturbed:
            run.wait_for(options.steps // 3)
            for rank in LEAVERS:
                run.processes["worker", rank].kill()
                run.processes["worker", rank].wait()
                del run.processes["worker", rank]
            run.wait_for(2 * options.steps // 3)
            for rank in LEAVERS:
                run.start_worker(rank)
        report = run.report()
        # Workers may leave and join one by one or together.
        if disturbed and not (min(run.members(), default=0) == 2 and run.members()[-1] == WORKERS):
            run.fail(f"members were {run.members()}: the job was too short for the workers to join again")
        return report


def main():
    parser = parser_of(__doc__)
    parser.add_argument("job", nargs="?", metavar="JOB.yaml", default=str(ROOT / "examples/fashion-mnist.yaml"))
    parser.add_argument("--steps", type=int, default=470)
    options = parser.parse_args()
    rows = []
    print("| seed | left alone | 4, 2, 4 workers | points |\n|---|---|---|---|")
    for seed in options.seeds:
        alone, disturbed = (100 * train(options, seed, d)["test_accuracy"] for d in (False, True))
        rows.append({"seed": seed, "alone": alone, "disturbed": disturbed})
        print(f"| {seed} | {alone:.2f} % | {disturbed:.2f} % | {disturbed - alone:+.2f} |", flush=True)
    points = statistics.mean(row["disturbed"] - row["alone"] for row in rows)
    print(f"| mean | {statistics.mean(row['alone'] for row in rows):.2f} % | "
          f"{statistics.mean(row['disturbed'] for row in rows):.2f} % | {points:+.2f} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.points is not None and points < -options.points:
        sys.exit(1)


if __name__ == "__main__":
    main()
