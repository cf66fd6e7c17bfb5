#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Soaks one job for a given time, while strangers and members attack it, its worker 1 is killed, links are cut, disks fail and clocks step.
Beside it, short jobs in all modes are disrupted (disrupted_jobs.py). The job must end with the bits of the undisturbed one. The processes that
live as long as the job may neither grow by more than 5 % nor collect descriptors after the first third of the time.

usage: soak.py FOLDER_OF_PROGRAMS [--seconds N] [--seed N] [--report FILE] [--also NAME=PID]...
  --seconds N      length of the soak (default 300)
  --seed N         the faults of an earlier run, which printed this number
  --report FILE    writes a report in Markdown
  --also NAME=PID  watches this process too
"""
import argparse
import collections
import math
import pathlib
import platform
import random
import signal
import subprocess
import sys
import threading
import time

import disrupted_jobs
from disrupted_jobs import Cleanups, Failure
from faulty_job import FaultyJob, Link
from hostile_clients import HEAVY, HostileClients
from process_watch import DESCRIPTORS_GROWTH_MAX, MEMORY_GROWTH_MAX, ProcessWatch
from protected_job import OpenLink, Secrets

from grpc_client import ask  # isort: skip
from messages import decode  # isort: skip

RATE = 10  # Steps per second, far below what the job can do, so that it lasts as long as the soak.
MARGIN = 30  # Seconds of steps that are left at the end of the soak, because a job that has fallen behind may overtake its schedule.
INTERVAL = 5  # Seconds between two samples, unless the soak is short.
SETTINGS = ("server.rejoin_timeout=10m", "checkpoint.store=shards", "checkpoint.interval=50")
STAYING = ("shard-0", "shard-1", "worker-0")  # The faults end none of them.
HEAVY_ONES = 20  # The soak begins with this number of each heavy attack, so that they are part of the warm-up.
PAUSE = 10  # Maximum number of seconds between two faults.
STATUS = "sluice.v1.Coordinator/GetStatus"


class LongJob:
    def __init__(self, cleanups, programs, steps, chance):
        self.job = FaultyJob(cleanups, programs, *SETTINGS, f"steps={steps}")
        self.job.settings.append(f"checkpoint.dir={self.job.checkpoints}")
        self.secrets, self.chance, self.counts = Secrets(self.job.folder), chance, collections.Counter()
        self.links = {"worker-0": Link(self.job.ports[0]), "worker-1": OpenLink(self.job.ports[0]), "shard-1": Link(self.job.ports[0])}
        for link in self.links.values():
            cleanups.callback(link.close)
        for shard in range(2):
            self.job.server(shard, *self.secrets.of_server(), coordinator=self.links["shard-1"].port, faults=f"shard-{shard}")
        for rank in range(2):
            self.start_worker(rank)

    def start_worker(self, rank):
        name = f"worker-{rank}"
        self.job.worker(rank, "--threads", 1, *self.secrets.of("worker"), coordinator=self.links[name].port, faults=name)

    def pids(self):
        return {name: process.pid for name, process in self.job.running.items()}

    def step(self):
        """Returns the step of the last worker, or None if shard 0 does not answer."""
        try:
            answers = ask(self.job.ports[0], self.secrets.tokens["observer"], STATUS, {}, seconds=2).answers
        except OSError:
            return None
        return decode("WorkerProgress", decode("MemberStatus", decode("GetStatusReply", answers[0])["members"])["progress"]).get("step", 0) \
            if answers and b"survival" in answers[0] else None

    def supervise(self):
        """Starts worker 1 again. No other process may end before the job does."""
        for name, process in list(self.job.running.items()):
            if process.poll() in (None, 0):
                continue
            if name in STAYING:
                raise Failure(f"{name} ended with status {process.returncode}\n{self.job.logs(60)}")
            self.start_worker(1)

    def kill(self):
        self.job.running["worker-1"].kill()

    def cut(self):
        link, direction = self.links[self.chance.choice(sorted(self.links))], self.chance.choice(("there", "back"))
        link.hold(direction)
        time.sleep(self.chance.uniform(0.2, 3))  # Less than a lease.
        link.release(direction)
        link.cut()

    def fail_disk(self):
        name = self.chance.choice(("shard-0", "shard-1"))
        self.job.rules(name, f"{self.chance.choice(('write', 'create', 'fsync', 'rename'))} checkpoints fail "
                             f"{self.chance.choice(('ENOSPC', 'EIO', 'EMFILE'))}")
        time.sleep(self.chance.uniform(1, 6))
        self.job.rules(name)

    def slow_disk(self):
        name = self.chance.choice(("shard-0", "shard-1"))
        self.job.rules(name, f"{self.chance.choice(('fsync', 'write'))} checkpoints delay {self.chance.uniform(0.5, 3):.1f} 2")

    def step_clock(self):
        self.job.clock(self.chance.choice(sorted(self.job.running)), self.chance.randrange(-100, 100) * 3600)

    def disrupt(self):
        name = self.chance.choice(sorted(FAULTS))
        self.counts[name] += 1
        FAULTS[name](self)


FAULTS = {"worker 1 killed": LongJob.kill, "link cut": LongJob.cut, "failing disk": LongJob.fail_disk, "slow disk": LongJob.slow_disk,
          "clock stepped": LongJob.step_clock}


class Background:
    """Calls a function in a thread until a time or end(), which raises the function's exception."""

    def __init__(self, function, until=math.inf):
        self.function, self.until, self.over, self.error = function, until, threading.Event(), None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over.is_set() and time.monotonic() < self.until:
                self.function(self.over)
        except Exception as error:  # Any error must reach the main thread.
            self.error = error

    def check(self):
        if self.error is not None:
            raise self.error

    def stop(self):
        self.over.set()
        self.thread.join()

    def end(self):
        self.stop()
        self.check()


class Pace:
    """Lets worker 0 run only for moments, shorter ones if the job is on time. A step that is lower than one before, because the job has rolled
    back, counts as if the job were on time."""

    def __init__(self, long_job, steps):
        self.long_job, self.steps, self.highest, self.begun = long_job, steps, 0, time.monotonic()

    def __call__(self, over):
        process = self.long_job.job.running["worker-0"]
        process.send_signal(signal.SIGSTOP)
        step = self.long_job.step()
        if step is not None and step <= self.steps:  # Some attacks claim other steps.
            self.highest = max(self.highest, step)
        ahead = self.highest / RATE - (time.monotonic() - self.begun)
        over.wait(min(max(ahead, 0), 1))
        process.send_signal(signal.SIGCONT)
        over.wait(0.01 if ahead > -5 else 0.1)


def undisturbed(programs, steps):
    with Cleanups() as cleanups:
        job = FaultyJob(cleanups, programs, f"steps={steps}")
        job.server(0), job.server(1), job.worker(0, "--threads", 1), job.worker(1, "--threads", 1)
        for name in [*job.running]:
            job.wait_until(lambda: job.running[name].poll() is not None, f"{name} of the undisturbed job ends", steps)
        return job.report("worker-0")["parameters_sha256"]


class Soak:
    def __init__(self, programs, seconds, seed, also):
        self.programs, self.seconds, self.seed, self.also = programs, seconds, seed, also
        self.shorts, self.short_faults, self.hostile, self.verdicts = collections.Counter(), collections.Counter(), collections.Counter(), []
        self.complaints, self.checkpoints = [], 0

    def disrupt_short_jobs(self, expected, until, check):
        seed = self.seed
        while time.monotonic() < until:
            for mode in random.Random(seed).sample(list(disrupted_jobs.MODES), len(disrupted_jobs.MODES)):
                check()
                if time.monotonic() > until:
                    break
                print(f"{mode}, --seed {seed} --mode {mode}", flush=True)
                self.short_faults += disrupted_jobs.run_job(self.programs, mode, seed, expected.get(mode))
                self.shorts[mode] += 1
            seed += 1

    def run(self):
        steps = int((self.seconds + MARGIN) * RATE)
        expected = {mode: disrupted_jobs.parameters_of_undisturbed(self.programs, mode)
                    for mode, (_, equal) in disrupted_jobs.MODES.items() if equal}
        of_long_job, chance = undisturbed(self.programs, steps), random.Random(self.seed)
        with Cleanups() as cleanups:
            long_job = LongJob(cleanups, self.programs, steps, chance)
            long_job.job.wait_until_complete()
            until = time.monotonic() + self.seconds
            watch = ProcessWatch(lambda: {**long_job.pids(), **self.also}, min(INTERVAL, self.seconds / 120), self.seconds)
            clients = HostileClients(long_job.job, long_job.secrets, long_job.links["worker-1"], random.Random(self.seed + 1), HEAVY * HEAVY_ONES)
            threads = [Background(lambda over: (long_job.supervise(), over.wait(0.1))),
                       Background(Pace(long_job, steps), until),
                       Background(lambda over: (long_job.disrupt(), over.wait(chance.uniform(1, PAUSE))), until),
                       Background(lambda over: clients.attack(), until)]
            for thread in threads:
                cleanups.callback(thread.stop)  # Before the job's processes are killed.
            self.disrupt_short_jobs(expected, until, lambda: [thread.check() for thread in threads])
            for thread in threads[1:]:
                thread.end()
            watch.end()
            if min(verdict.samples[-1].seconds for verdict in watch.verdicts(STAYING)) < self.seconds - 3 * watch.interval:
                raise Failure(f"the long job ended before the soak did\n{long_job.job.logs(60)}")
            self.checkpoints = len(long_job.job.complete())

            def has_ended():
                threads[0].check()
                return all(process.poll() == 0 for process in long_job.job.running.values())

            long_job.job.wait_until(has_ended, "the long job has ended", self.seconds)
            threads[0].end()
            hashes = {long_job.job.report(f"worker-{rank}")["parameters_sha256"] for rank in range(2)}
        self.hostile, self.faults = clients.counts, long_job.counts
        self.verdicts = watch.verdicts([*STAYING, *self.also])
        self.complaints = [complaint for verdict in self.verdicts for complaint in verdict.complaints()]
        if hashes != {of_long_job}:
            self.complaints.append(f"the long job's parameters are {sorted(hashes)}, not {of_long_job}")

    def report(self):
        asked = subprocess.run([self.programs / "sluice-server", "--version"], capture_output=True, text=True, check=True)
        lines = ["# Soak", "", f"`tests/e2e/soak.py --seconds {self.seconds:g} --seed {self.seed}`, {time.strftime('%Y-%m-%d', time.gmtime())}, "
                 f"{asked.stdout.strip()}, {platform.system()} {platform.release()}.", ""]
        lines += ["All promises held." if not self.complaints else "**Failed.**", ""]
        lines += [f"- {complaint}" for complaint in self.complaints] + [""] * bool(self.complaints)
        lines += ["Medians of resident memory and means of the middle half of the numbers of descriptors, in the second and the last third of the "
                  f"time. Allowed are {MEMORY_GROWTH_MAX:.0%} and {DESCRIPTORS_GROWTH_MAX} more.", "",
                  "| process | samples | memory, second third | last third | change | largest | descriptors, second third | last third |",
                  "|---|---|---|---|---|---|---|---|"]
        for verdict in self.verdicts:
            before, last = (f"{value / 2**20:.1f} MiB" for value in verdict.memory)
            largest = max(sample.resident for sample in verdict.samples) / 2**20
            lines.append(f"| {verdict.name} | {len(verdict.samples)} | {before} | {last} | {verdict.growth:+.1%} | {largest:.1f} MiB | "
                         f"{verdict.descriptors[0]:.1f} | {verdict.descriptors[1]:.1f} |")
        lines += ["", "Resident memory in MiB, over time:", "", self.course(), ""]
        for title, counts in (("Faults of the long job", self.faults), ("Attacks on the long job", self.hostile),
                              ("Short jobs beside it, by mode", self.shorts), ("Their faults", self.short_faults)):
            lines += [f"{title} ({sum(counts.values())}): " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts)) + ".", ""]
        return "\n".join(lines)

    def course(self):
        columns = 10
        head = "| minute | " + " | ".join(f"{self.seconds / 60 * (i + 1) / columns:.1f}" for i in range(columns)) + " |"
        rows = [head, "|---" * (columns + 1) + "|"]
        for verdict in self.verdicts:
            at = [verdict.samples[max(0, (i + 1) * len(verdict.samples) // columns - 1)].resident / 2**20 for i in range(columns)]
            rows.append(f"| {verdict.name} | " + " | ".join(f"{value:.1f}" for value in at) + " |")
        return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=PID")
    options = parser.parse_args()
    also = {name: int(pid) for name, _, pid in (each.partition("=") for each in options.also)}
    soak = Soak(options.programs.resolve(), options.seconds, options.seed, also)
    try:
        soak.run()
    except (Failure, AssertionError) as failure:
        sys.exit(f"soak, --seed {options.seed}: {failure}")
    report = soak.report()
    print(report)
    if options.report:
        options.report.write_text(report)
    if soak.complaints:
        sys.exit(f"soak, --seed {options.seed}: " + "; ".join(soak.complaints))


if __name__ == "__main__":
    main()
