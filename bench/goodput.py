#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what unreliable and slow workers cost. It runs real servers and four workers, and gives each worker a fixed share of a core.
One worker is killed after a third of the rounds and restarted after two thirds. Another one is four times slower throughout.

usage: bench/goodput.py [JOB.yaml] [--seeds 1,2,3] [--share 0.25] [--least 0.92] [--points 0.5] [--json FILE]

JOB.yaml: examples/four-sites.yaml. `own rates` is the sum of the samples per second that each worker reaches alone, with the same share
and without exchanges, over the time for which the worker was in the job. A restarted worker is in the job from the moment when it joins,
and every worker until its last sample. Rank 0's test after each epoch but the last counts as a loss.
`goodput` is the number of samples that the workers trained in that time, as a part of that sum. The accuracy is compared with the same
job without shares and without interruption. With --least and --points, the program exits with 1 if a goal is missed. Needs root, because
it makes control groups of processors (cgroups of version 1 or 2).
"""
import json
import os
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
from seed_sweep import ROOT, parser_of, train  # noqa: E402

WORKERS, KILLED, SLOW, SLOWER = 4, 1, 3, 4
LIMIT = 3600  # Seconds for each run.
PERIOD = 0.25  # Seconds between two readings.
WARM = 1280  # Samples before a worker's own rate is measured.
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Share:
    """A control group whose processes get a part of one core. On several cores, the kernel would leave a part of the share unused at times."""

    def __init__(self, name, share, core):
        self.core = core
        self.folder = (CGROUPS / "cpu" if (CGROUPS / "cpu").is_dir() else CGROUPS) / name
        self.folder.mkdir(exist_ok=True)
        period = 20_000
        if (self.folder / "cpu.cfs_quota_us").exists():
            (self.folder / "cpu.cfs_period_us").write_text(str(period))
            (self.folder / "cpu.cfs_quota_us").write_text(str(int(period * share)))
        else:
            (self.folder / "cpu.max").write_text(f"{int(period * share)} {period}")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        os.sched_setaffinity(0, {self.core})

    def remove(self):
        self.folder.rmdir()


class Worker:
    """Counts the samples of a worker process, and the time for which it is in the job."""

    def __init__(self, command, share, folder, rank):
        self.log_path, self.page = folder / f"worker-{rank}-{time.monotonic()}.log", f"127.0.0.1:{free_port()}"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([*command, "--http-listen", self.page], stdout=log, stderr=log, preexec_fn=share.enter)
        self.samples, self.begun, self.first, self.last = 0, None, None, None

    def read(self):
        if not re.search("shards got their parameters|job is at a later step", self.log_path.read_text()):
            return
        try:
            with urllib.request.urlopen(f"http://{self.page}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return
        samples = sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("sluice_samples_total"))
        if self.first is None:
            self.first, self.begun = samples, time.monotonic()
        if samples - self.first > self.samples:  # The final test is not part of the training.
            self.samples, self.last = samples - self.first, time.monotonic()

    def seconds(self):
        return 0 if self.last is None else self.last - self.begun


class Run:
    def __init__(self, options, folder, changes, shares):
        self.options, self.folder, self.shares = options, pathlib.Path(folder), shares
        self.changes = [*options.set, *changes]
        self.ports, self.http = [free_port() for _ in range(2)], free_port()
        self.servers = []
        for shard in range(2):
            with open(self.folder / f"server-{shard}.log", "w") as log:
                self.servers.append(subprocess.Popen(
                    [*self.command("server"), "--shard", str(shard), "--listen", f"127.0.0.1:{self.ports[shard]}", "--http-listen",
                     f"127.0.0.1:{self.http}" if shard == 0 else "off"], stdout=log, stderr=log))
        self.workers, self.gone = {}, []

    def command(self, kind):
        command = [str(self.options.bin / f"sluice-{kind}"), "--job", self.options.job, "--coordinator", f"127.0.0.1:{self.ports[0]}"]
        for change in self.changes:
            command += ["--set", change]
        return command

    def start(self, rank):
        # More threads than cores in the share wait for each other.
        command = [*self.command("worker"), "--rank", str(rank), "--threads", "1", "--report", str(self.folder / f"{rank}.json")]
        self.workers[rank] = Worker(command, self.shares[rank], self.folder, rank)

    def kill(self, rank):
        worker = self.workers.pop(rank)
        worker.read()
        worker.process.kill()
        worker.process.wait()
        self.gone.append(worker)

    def step(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/status.json", timeout=5) as answer:
                return json.loads(answer.read())["this_shard"]["step"]
        except OSError:
            return 0

    def watch(self, until):
        end = time.monotonic() + LIMIT
        while not until():
            for worker in self.workers.values():
                worker.read()
            if time.monotonic() > end or any(worker.process.poll() for worker in self.workers.values()):
                self.fail()
            time.sleep(PERIOD)

    def fail(self):
        logs = "".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))
        self.end()
        sys.exit(f"the run failed\n{logs}")

    def ended(self):
        return all(worker.process.poll() is not None for worker in self.workers.values())

    def end(self):
        for process in [*self.servers, *(worker.process for worker in self.workers.values())]:
            process.kill()
            process.wait()


def own_rate(options, share):
    """Samples per second of one worker alone, which does not exchange."""
    with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
        changes = ["workers=1", "min_workers=1", "quorum=1", "local_steps=1000", "fragments=1", "epochs=100", f"checkpoint.dir={folder}/checkpoints"]
        run = Run(options, folder, changes, {0: share})
        run.start(0)
        worker = run.workers[0]
        run.watch(lambda: worker.samples >= WARM)  # The first steps of a small share take seconds.
        begun, samples = time.monotonic(), worker.samples
        run.watch(lambda: time.monotonic() > begun + options.alone)
        rate = (worker.samples - samples) / (worker.last - begun)
        run.end()
        return rate


def disturbed(options, seed, shares, rates, exchanges):
    with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
        changes = [f"seed={seed}", f"checkpoint.dir={folder}/checkpoints"]
        run = Run(options, folder, changes, shares)
        for rank in range(WORKERS):
            run.start(rank)
        run.watch(lambda: run.step() >= exchanges // 3)
        run.kill(KILLED)
        run.watch(lambda: run.step() >= 2 * exchanges // 3)
        run.start(KILLED)
        run.watch(run.ended)
        report = next(json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))
                      if "test_accuracy" in json.loads(path.read_text()))
        all_of_rank = [(rank, worker) for rank, worker in run.workers.items()] + [(KILLED, worker) for worker in run.gone]
        own = sum(worker.seconds() * rates[rank == SLOW] for rank, worker in all_of_rank)
        samples = sum(worker.samples for _, worker in all_of_rank)
        joined = "takes part once it has caught up" in run.workers[KILLED].log_path.read_text()
        rolled_back = "goes back" in "".join(path.read_text() for path in pathlib.Path(folder).glob("server-*.log"))
        run.end()
        if not joined or rolled_back:
            sys.exit("the killed worker did not join again, or the job rolled back: train longer")
        parts = [{"rank": rank, "seconds": worker.seconds(), "samples": worker.samples, "goodput": worker.samples / (worker.seconds() * rates[rank == SLOW])}
                 for rank, worker in all_of_rank]
        return {"goodput": samples / own, "accuracy": report["test_accuracy"], "seconds": max(w.seconds() for _, w in all_of_rank), "workers": parts}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("job", nargs="?", metavar="JOB.yaml", default=str(ROOT / "examples/four-sites.yaml"))
    parser.add_argument("--share", type=float, default=0.25, help="share of a core of each worker but the slow one (default: 0.25)")
    parser.add_argument("--alone", type=float, default=20, help="seconds for which a worker's own rate is measured (default: 20)")
    parser.add_argument("--least", type=float, help="exit with 1 if the mean goodput is lower")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    shares = [Share(f"sluice-goodput-{rank}", options.share / (SLOWER if rank == SLOW else 1), cores[rank % len(cores)]) for rank in range(WORKERS)]
    rates = {slow: own_rate(options, shares[SLOW if slow else 0]) for slow in (False, True)}
    print(f"own rates: {rates[False]:.0f} samples/s, and {rates[True]:.0f} of the slow worker", flush=True)
    rows = []
    print("| seed | goodput | seconds | accuracy | undisturbed | points |\n|---|---|---|---|---|---|")
    for seed in options.seeds:
        with tempfile.TemporaryDirectory(prefix="goodput-") as folder:
            calm = train(options, options.job, [f"checkpoint.dir={folder}/checkpoints"], seed, False)
        row = {"seed": seed, "calm": calm["test_accuracy"], **disturbed(options, seed, shares, rates, calm["rounds"])}
        rows.append(row)
        print(f"| {seed} | {row['goodput']:.3f} | {row['seconds']:.0f} | {row['accuracy']:.2%} | {row['calm']:.2%} | "
              f"{100 * (row['accuracy'] - row['calm']):+.2f} |", flush=True)
    for share in shares:
        share.remove()
    goodput = statistics.mean(row["goodput"] for row in rows)
    points = 100 * statistics.mean(row["accuracy"] - row["calm"] for row in rows)
    print(f"| mean | {goodput:.3f} | | | | {points:+.2f} |")
    if options.json:
        options.json.write_text(json.dumps({"rates": {str(slow): rate for slow, rate in rates.items()}, "rows": rows}, indent=1) + "\n")
    if (options.least is not None and goodput < options.least) or (options.points is not None and points < -options.points):
        sys.exit(1)


if __name__ == "__main__":
    main()
