#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what followers cost a running job, on this machine with real processes.

usage: bench/followers.py [BIN] [--pairs 5] [--seconds 20] [--json FILE]

BIN has the programs (default: build/release/bin). It measures three things:
- slowdown: steps per second of a job whose workers wait 100 ms in each step and whose shards have 10 million parameters, with 8 direct
  followers and without, in turns. The followers take updates and do not apply them, because they would do that on other machines.
- catching up: a follower is stopped for 50 versions. Bytes that it receives until it has the newest version, in anchors.
- relays: 64 followers behind 2 relays. Bytes that the shards send to followers, divided by the bytes that one relay receives.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from faulty_job import FaultyJob  # noqa: E402
from processes import free_port  # noqa: E402

FOLLOWERS, RELAYS, BEHIND_RELAYS, BEHIND = 8, 2, 64, 50


class Job(FaultyJob):
    """Two shards and two workers that compute nothing. Every contribution changes about 1 % of the parameters."""

    def __init__(self, test, programs, parameters, compute_ms):
        super().__init__(test, programs, "mode=async", "steps=10000000", "compression.uplink=topk:1%", "compression.downlink=topk:1%",
                         "optimizer={name: sgd, lr: 0.0001}", "followers={every: 1, max_connected: 100}", "server.lease_timeout=60s")
        self.http = [free_port() for _ in self.ports]
        for shard, port in enumerate(self.ports):
            coordinator = ["--coordinator", f"127.0.0.1:{self.ports[0]}"] if shard else []
            self.start(f"shard-{shard}", "sluice-server", "--shard", shard, "--listen", f"127.0.0.1:{port}",
                       "--http-listen", f"127.0.0.1:{self.http[shard]}", *coordinator)
        for rank in range(2):
            self.start(f"worker-{rank}", "synthetic_worker", "--rank", rank, "--coordinator", f"127.0.0.1:{self.ports[0]}",
                       "--parameters", parameters, "--steps", 10_000_000, "--compute-ms", compute_ms)
        self.wait_until(lambda: self.metric("sluice_step") > 10, "the job runs")

    def metric(self, name, port=None):
        """Returns the sum over shards, or the value of the process with this HTTP port."""
        total = 0.0
        for one in [port] if port else self.http:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{one}/metrics", timeout=60) as answer:
                    total += sum(float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", answer.read().decode(), re.M))
            except OSError:
                return 0.0
        return total

    def read(self, count):
        """Starts followers that take updates and do not apply them."""
        with self.log_path("readers").open("a") as log:
            self.running["readers"] = subprocess.Popen([self.programs / "weights_readers", f"127.0.0.1:{self.ports[0]}", str(count)],
                                                       stdout=log, stderr=subprocess.STDOUT)
        self.wait_until_says("readers", "ready")

    def follow(self, name, port=None):
        command = [self.programs / "sluice", "follow", f"127.0.0.1:{port or self.ports[0]}", "--output", self.folder / name]
        with self.log_path(name).open("a") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                                  preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)))
        self.wait_until(lambda: self.versions(name), f"{name} has a version")

    def versions(self, name):
        """Returns (version, received bytes, anchors) of each version."""
        return [tuple(map(int, found)) for found in re.findall(r"version (\d+): (\d+) bytes received .*, (\d+) anchor", self.log(name))]

    def pace(self, seconds):
        """Returns steps per second of the shards."""
        begun, before = time.monotonic(), self.metric("sluice_step")
        time.sleep(seconds)
        return (self.metric("sluice_step") - before) / (time.monotonic() - begun) / len(self.ports)


class Bench(unittest.TestCase):
    options = None
    result = {}

    def test_slowdown(self):
        ratios = []
        job = Job(self, self.options.bin, 10_000_000, 100)
        for _ in range(self.options.pairs):
            alone = job.pace(self.options.seconds)
            job.read(FOLLOWERS)
            followed = job.pace(self.options.seconds)
            ratios.append(followed / alone)
            job.kill("readers")
            job.log_path("readers").unlink()
        self.result["slowdown"] = {"ratios": ratios, "median": statistics.median(ratios), "parameters": 10_000_000,
                                   "versions": job.metric("sluice_follower_versions_total"), "skipped": job.metric("sluice_follower_skipped_versions_total")}

    def test_catching_up(self):
        job = Job(self, self.options.bin, 1_000_000, 50)
        job.follow("follower")
        job.wait_until(lambda: len(job.versions("follower")) > 5, "the follower reads versions")
        job.running["follower"].send_signal(signal.SIGSTOP)
        last, newest = job.versions("follower")[-1][0], lambda: job.metric("sluice_follower_version") / 2
        job.wait_until(lambda: newest() > last + BEHIND, "the follower is behind")
        seen, target = len(job.versions("follower")), newest()
        job.running["follower"].send_signal(signal.SIGCONT)
        job.wait_until(lambda: job.versions("follower")[-1][0] >= target, "the follower has caught up")
        later = job.versions("follower")[seen:]
        reached = next(i for i, one in enumerate(later) if one[0] >= target)
        anchor = 1_000_000 * 2
        self.result["catching_up"] = {"behind": target - last, "anchors_of_bytes": sum(one[1] for one in later[:reached + 1]) / anchor,
                                      "anchors": sum(one[2] for one in later[:reached + 1])}

    def test_relays(self):
        job = Job(self, self.options.bin, 200_000, 200)
        ports = [free_port() for _ in range(RELAYS)]
        https = [free_port() for _ in range(RELAYS)]
        for i, port in enumerate(ports):
            command = [job.programs / "sluice-relay", "--followers-of", f"127.0.0.1:{job.ports[0]}", "--listen", f"127.0.0.1:{port}",
                       "--http-listen", f"127.0.0.1:{https[i]}"]
            with job.log_path(f"relay-{i}").open("a") as log:
                job.running[f"relay-{i}"] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            job.wait_until_says(f"relay-{i}", "serves followers")
        for i in range(BEHIND_RELAYS):
            job.follow(f"follower-{i}", ports[i % RELAYS])
        sent, relayed = job.metric("sluice_follower_bytes_total"), sum(job.metric("sluice_follower_bytes_total", one) for one in https)
        time.sleep(self.options.seconds)
        sent = job.metric("sluice_follower_bytes_total") - sent
        relayed = sum(job.metric("sluice_follower_bytes_total", one) for one in https) - relayed
        self.result["relays"] = {"followers": BEHIND_RELAYS, "connected_to_shards": job.metric("sluice_followers"), "sent_by_shards": sent,
                                 "sent_by_relays": relayed, "egress_in_followers": sent / (relayed / BEHIND_RELAYS)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", nargs="*", default=["slowdown", "catching_up", "relays"])
    parser.add_argument("--json", type=pathlib.Path)
    Bench.options = parser.parse_args()
    suite = unittest.TestSuite(Bench(f"test_{name}") for name in Bench.options.only)
    done = unittest.TextTestRunner(verbosity=2).run(suite)
    text = json.dumps(Bench.result, indent=2)
    print(text)
    if Bench.options.json:
        Bench.options.json.write_text(text + "\n")
    sys.exit(not done.wasSuccessful())


if __name__ == "__main__":
    main()
