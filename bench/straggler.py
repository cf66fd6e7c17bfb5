#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of one slow worker in modes that wait for it and in modes that do not: sluice-server and four
synthetic_workers, one of which is stopped most of the time (SIGSTOP and SIGCONT, alternating every few milliseconds). Modes run
in turn. `sync`, which waits for all workers, is the reference.

usage: straggler.py [options]
  --bin FOLDER       programs (build/release/bin)
  --modes LIST       among quorum, async and ssp (quorum,async)
  --compute MS       time of a step in each worker (20)
  --slow TIMES       slowdown of the last worker (4)
  --grace MS         time that a quorum waits for the others (2)
  --seconds S        duration of each turn (6)
  --rounds N         rounds of turns, each with all modes (3)
  --uplink SPEC      (topk:1%+int4)
  --json FILE        all figures

Figures are per second: `contributions` are applied gradients of all workers, `steps` are those of the fastest worker.
Lower limits: a step of `sync` takes TIMES x MS, and a step of a quorum takes MS. Without waiting, 3 + 1 / TIMES contributions
arrive in MS.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

from survival import Worker  # Also makes `processes` importable.
from processes import SlowedDown, free_port

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = 4

JOB = """\
name: quorum-bench
workers: {workers}
shards: 1
model: {{name: mlp, hidden: [64]}}
data: {{format: synthetic, limit: 1000, test_limit: 128}}
batch_size_per_worker: 16
steps: 1000000
optimizer: {{name: sgd, lr: 0.01, location: {on}}}
compression: {{uplink: "{uplink}", downlink: int8}}
{mode}
"""


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{"))


def keys(mode, options):
    return {"sync": "",
            "quorum": f"quorum: {WORKERS - 1}\nstraggler_timeout: {options.grace}ms",
            "async": "mode: async",
            "ssp": "mode: ssp\nstaleness: 2"}[mode]


def turn(options, folder, mode):
    """Steps per second of the fastest and of the slow worker, and contributions of all."""
    folder.mkdir()
    job = folder / "job.yaml"
    job.write_text(JOB.format(workers=WORKERS, uplink=options.uplink, mode=keys(mode, options),
                              on="shards" if mode in ("async", "ssp") else "workers"))
    port, http = free_port(), free_port()
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(
            [options.bin / "sluice-server", "--job", job, "--shard", "0", "--listen", f"127.0.0.1:{port}", "--http-listen",
             f"127.0.0.1:{http}"], stdout=log, stderr=log)
        workers = []
        try:
            for rank in range(WORKERS):
                workers.append(Worker([options.bin / "synthetic_worker", "--job", job, "--coordinator",
                                       f"127.0.0.1:{port}", "--rank", str(rank), "--steps", "1000000",
                                       "--compute-ms", str(options.compute)], log))
            for worker in workers:
                worker.wait_for_step(5)
            slowed = SlowedDown(workers[-1].process.pid, options.slow)
            time.sleep(1)
            begin = [worker.last() for worker in workers]
            late = metric(http, "sluice_late_contributions_total")
            time.sleep(options.seconds)
            end = [worker.last() for worker in workers]
            late = metric(http, "sluice_late_contributions_total") - late
            slowed.end()
        except RuntimeError as failed:
            raise SystemExit(f"{mode}: {failed}\n{(folder / 'log').read_text()[-2000:]}")
        finally:
            for process in [server] + [worker.process for worker in workers]:
                process.kill()
                process.wait()
    speeds = [(b[0] - a[0]) / (b[1] - a[1]) if b[1] > a[1] else 0 for a, b in zip(begin, end)]
    return {"mode": mode, "steps": max(speeds), "slow_steps": speeds[-1], "contributions": sum(speeds),
            "late": late / options.seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--modes", default="quorum,async")
    parser.add_argument("--compute", type=float, default=20)
    parser.add_argument("--slow", type=float, default=4)
    parser.add_argument("--grace", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uplink", default="topk:1%+int4")
    parser.add_argument("--json")
    options = parser.parse_args()
    modes = options.modes.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for mode in ["sync"] + modes:
                rows.append(turn(options, pathlib.Path(folder) / f"{number}-{mode}", mode))
                print("{mode:>7}: {contributions:6.1f} contributions/s, {steps:6.1f} steps/s, the slow worker {slow_steps:5.1f}, "
                      "{late:5.1f} bundles/s late".format(**rows[-1]), flush=True)
    ratios = {}
    for mode in modes:
        # With a quorum, a late contribution counts in a later step, so steps are compared instead of contributions.
        what = "steps" if mode == "quorum" else "contributions"
        turns = [[row[what] for row in rows if row["mode"] == m] for m in ("sync", mode)]
        ratios[mode] = [b / a for a, b in zip(*turns)]
        print(f"{mode}: {statistics.median(ratios[mode]):.2f} times the {what} of sync "
              f"({min(ratios[mode]):.2f} to {max(ratios[mode]):.2f})")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"turns": rows, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
