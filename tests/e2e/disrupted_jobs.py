#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks real jobs for a given time, one job after the other in every mode: kills processes, stops them for longer than a lease, cuts one
direction of a link, fills and slows disks, steps clocks, starts a second process of a shard, and lets strangers and members attack its ports
(tests/hostile). Each job must end on its own: with the bits of the undisturbed job in modes that promise equal bits, and with a low loss in other
modes. No process may be left.

usage: disrupted_jobs.py FOLDER_OF_PROGRAMS [--seconds N] [--seed N] [--mode MODE]...
  --seconds N   start no further job after N seconds (default 180)
  --seed N      the disruptions of an earlier run, which printed this number
  --mode MODE   only this mode; may be repeated (default: all)
"""
import argparse
import collections
import concurrent.futures
import contextlib
import math
import os
import pathlib
import random
import signal
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "hostile"))

from faulty_job import FaultyJob, Link  # noqa: E402
from hostile_clients import HostileClients  # noqa: E402
from processes import SlowedDown, command_line, free_port, is_running  # noqa: E402
from protected_job import OpenLink, Secrets  # noqa: E402

STEPS = 800
INTERVAL = 25   # Steps between two checkpoints.
LEASE = 2  # Seconds. A busy machine can exceed the lease, which counts as one more disruption.
SLOW = 15  # Slowdown factor of worker 0 until all disruptions are over, so that the job does not end before them.
DISRUPTIONS = 2  # In each job.
RESTARTS_MAX = 40
SHARDS = ("shard-0", "shard-1")
WORKERS = ("worker-0", "worker-1")
LEARNED = 0.5 * math.log(10)  # Guessing has a loss of log 10.

# Each mode's settings, and whether the mode promises the bits of the undisturbed job.
MODES = {
    "sync": ([], True),
    "optimizer_on_shards": (["optimizer.location=shards"], True),
    "local_sgd": (["mode=local_sgd", "local_steps=10", "fragments=2", "fragment_delay=2"], True),
    "store_on_shards": (["checkpoint.store=shards"], True),
    "quorum": (["workers=3", "quorum=2", "straggler_timeout=20ms"], False),
    "elastic": (["membership=elastic", "min_workers=1"], False),
    "async": (["mode=async"], False),
    "ssp": (["mode=ssp", "staleness=2"], False),
}


class Failure(Exception):
    """A job that broke a promise."""


class Cleanups(contextlib.ExitStack):
    def addCleanup(self, function, *arguments):  # FaultyJob calls this name.
        self.callback(function, *arguments)


class DisruptedJob:
    """Two shards and the mode's workers, each on a link of its own. A process that ends before the job does is started again, as
    Kubernetes or `sluice run` would start it."""

    def __init__(self, cleanups, programs, mode, chance):
        settings = [f"steps={STEPS}", f"server.lease_timeout={LEASE}s", "server.rejoin_timeout=10m", "checkpoint.interval=%d" % INTERVAL,
                    *MODES[mode][0]]
        self.job = FaultyJob(cleanups, programs, *settings)
        self.job.settings.append(f"checkpoint.dir={self.job.checkpoints}")
        self.chance, self.counts, self.restarts = chance, collections.Counter(), collections.Counter()
        self.workers = [f"worker-{rank}" for rank in range(3 if mode == "quorum" else 2)]
        self.links, self.secrets = {}, Secrets(self.job.folder)
        for name, port in [*((name, self.job.ports[0]) for name in (*self.workers, SHARDS[1])), *zip(("to-0", "to-1"), self.job.ports)]:
            self.links[name] = (OpenLink if name == WORKERS[1] else Link)(port)
            cleanups.callback(self.links[name].close)
        self.clients = HostileClients(self.job, self.secrets, self.links[WORKERS[1]], chance)
        for name in (*SHARDS, *self.workers):
            self.start(name)

    def start(self, name, listen=None):
        number = int(name.rpartition("-")[2])
        if name in self.workers:
            return self.job.worker(number, "--threads", "1", *self.secrets.of("worker"), coordinator=self.links[name].port, faults=name)
        advertise = f"127.0.0.1:{self.links[f'to-{number}'].port}" if listen is None else f"127.0.0.1:{listen}"
        return self.job.server(number, "--advertise", advertise, *self.secrets.of_server(), listen=listen,
                               coordinator=self.links.get(name, self.links["to-0"]).port, faults=name)

    def supervise(self):
        """Restarts processes that have ended with an error."""
        for name, process in list(self.job.running.items()):
            if process.poll() in (None, 0):
                continue
            self.restarts[name] += 1
            if sum(self.restarts.values()) > RESTARTS_MAX:
                raise Failure(f"{name} ended with status {process.returncode}; there were too many restarts: {dict(self.restarts)}")
            self.start(name)

    def wait_until(self, condition, what):
        def supervised():
            self.supervise()
            return condition()
        return self.job.wait_until(supervised, what)

    def wait_for_checkpoint(self):
        """Waits for a new checkpoint, which needs every shard and every worker that the job waits for."""
        newest = max([0, *self.job.complete()])
        self.wait_until(lambda: max([0, *self.job.complete()]) > newest or self.ended(), f"a checkpoint after step {newest}")

    def ended(self):
        return all(process.poll() == 0 for process in self.job.running.values())

    def pause(self, shortest, longest):
        """Waits while a fault lasts. The supervisor continues meanwhile."""
        end = time.monotonic() + self.chance.uniform(shortest, longest)
        while time.monotonic() < end:
            self.supervise()
            time.sleep(0.05)

    def disrupt(self):
        kind = self.chance.choice(sorted(DISRUPTIONS_BY_NAME))
        self.counts[kind] += 1
        what = DISRUPTIONS_BY_NAME[kind](self)
        print(f"  {kind}: {what}", flush=True)
        self.wait_for_checkpoint()

    def victim(self, *of):
        return self.chance.choice(of or (*SHARDS, *self.workers))

    def kill(self, *names):
        for name in names or (self.victim(),):
            self.job.running[name].kill()
        return ", ".join(names)

    def kill_one(self):
        return self.kill(self.victim())

    def kill_several(self):
        return self.kill(*self.chance.sample([*SHARDS, *self.workers], self.chance.choice((2, 3, 2 + len(self.workers)))))

    def stop_longer_than_a_lease(self):
        name = self.victim(*SHARDS, *self.workers[1:])  # SlowedDown stops and continues worker 0.
        process = self.job.running[name]
        process.send_signal(signal.SIGSTOP)
        self.pause(1.2 * LEASE, 2.5 * LEASE)
        process.send_signal(signal.SIGCONT)
        return name

    def cut_one_way(self):
        name, direction = self.chance.choice(sorted(self.links)), self.chance.choice(("there", "back"))
        self.links[name].hold(direction)
        self.pause(0.2 * LEASE, 3 * LEASE)
        self.links[name].release(direction)
        self.links[name].cut()  # A host also does this with a connection that has been silent for too long.
        return f"{direction} on the link {name}"

    def fill_disk(self):
        name = self.victim()
        operation = self.chance.choice(("write", "create", "fsync", "rename", "link"))
        self.job.rules(name, f"{operation} checkpoints fail {self.chance.choice(('ENOSPC', 'EIO', 'EMFILE'))}")
        self.pause(0.5 * LEASE, 3 * LEASE)
        self.job.rules(name)
        return f"{operation} of {name}"

    def slow_disk(self):
        name = self.victim()
        self.job.rules(name, f"{self.chance.choice(('fsync', 'write', 'open-read'))} checkpoints delay {self.chance.uniform(0.5, 3):.1f} 2")
        return name

    def step_clock(self):
        name, hours = self.victim(), self.chance.randrange(-100, 100)
        self.job.clock(name, hours * 3600)
        return f"{name} by {hours} h"

    def start_second_shard(self):
        """Starts a second process of a shard on another port. The process that attached first must end. That may be the second one, if
        the first has not attached yet."""
        name = self.victim(SHARDS[1])
        first = self.job.running.pop(name)
        self.start(name, listen=free_port())
        second = self.job.running.pop(name)  # Until it is clear which of the two stays, the supervisor restarts neither.
        self.wait_until(lambda: first.poll() is not None or second.poll() is not None, f"one of two processes of {name} has ended")
        self.job.running[name] = second if first.poll() is not None else first
        return name

    def be_attacked(self):
        """The supervisor continues meanwhile."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            attack = pool.submit(self.clients.attack)
            while not attack.done():
                self.supervise()
                time.sleep(0.05)
            return attack.result()

    def finish(self):
        """Checks that all exit codes are 0 and no process is left."""
        self.wait_until(self.ended, "all processes have ended")
        folder = str(self.job.folder)
        left = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                if any(folder in word for word in command_line(pid)) and is_running(pid)]
        if left:
            raise Failure(f"processes {left} still run")
        return [self.job.report(name) for name in self.workers]


DISRUPTIONS_BY_NAME = {
    "kill": DisruptedJob.kill_one, "kill several": DisruptedJob.kill_several, "stop": DisruptedJob.stop_longer_than_a_lease,
    "cut": DisruptedJob.cut_one_way, "failing disk": DisruptedJob.fill_disk, "slow disk": DisruptedJob.slow_disk,
    "clock": DisruptedJob.step_clock, "second shard": DisruptedJob.start_second_shard, "hostile": DisruptedJob.be_attacked,
}


def parameters_of_undisturbed(programs, mode):
    with Cleanups() as cleanups:
        job = FaultyJob(cleanups, programs, f"steps={STEPS}", "server.lease_timeout=3600s", *MODES[mode][0])
        job.settings += [f"checkpoint.dir={job.checkpoints}", f"checkpoint.interval={INTERVAL}"]
        job.server(0), job.server(1), job.worker(0, "--threads", "1"), job.worker(1, "--threads", "1")
        job.wait_until_ended()
        return job.report("worker-0")["parameters_sha256"]


def run_job(programs, mode, seed, expected):
    """Runs one disrupted job; returns how often each kind of disruption struck."""
    chance = random.Random(f"{seed} {mode}")
    with Cleanups() as cleanups:
        disrupted = DisruptedJob(cleanups, programs, mode, chance)
        try:
            if chance.random() < 0.7:  # Otherwise, the first disruption strikes during the start.
                disrupted.wait_for_checkpoint()
            for _ in range(DISRUPTIONS):
                if disrupted.ended():
                    break
                with SlowedDown(disrupted.job.running["worker-0"].pid, SLOW):
                    disrupted.disrupt()
            reports = disrupted.finish()
            check(reports, mode, expected)
        except (Failure, AssertionError) as error:
            raise Failure(f"{mode}, seed {seed}: {error}\n{disrupted.job.logs(60)}") from None
    return disrupted.counts


def check(reports, mode, expected):
    if MODES[mode][1]:
        wrong = [report["parameters_sha256"] for report in reports if report["parameters_sha256"] != expected]
        if wrong:
            raise Failure(f"parameters are {wrong}, not {expected}")
    elif reports[0]["train_loss"] >= LEARNED:
        raise Failure(f"the loss is {reports[0]['train_loss']}, not below {LEARNED:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--mode", action="append", choices=sorted(MODES))
    options = parser.parse_args()
    programs, modes = options.programs.resolve(), options.mode or list(MODES)
    expected = {mode: parameters_of_undisturbed(programs, mode) for mode in modes if MODES[mode][1]}
    end = time.monotonic() + options.seconds
    counts, jobs, seed = collections.Counter(), collections.Counter(), options.seed
    while time.monotonic() < end:
        for mode in random.Random(seed).sample(modes, len(modes)):
            if time.monotonic() > end:
                break
            print(f"{mode}, --seed {seed} --mode {mode}", flush=True)
            try:
                counts += run_job(programs, mode, seed, expected.get(mode))
            except Failure as failure:
                sys.exit(f"disrupted_jobs: {failure}")
            jobs[mode] += 1
        seed += 1
    print(f"jobs: {dict(jobs)}; disruptions: {dict(counts)}; all ended as they must")


if __name__ == "__main__":
    main()
