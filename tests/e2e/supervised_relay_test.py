#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs racks of real processes as the chart starts them: with --supervised, a separate volume for each server and relay, and workers that
get their relay instead of their rank. A stopped relay must come back. After the job's end, a relay must still become ready and stay up.

usage: supervised_relay_test.py FOLDER_OF_PROGRAMS
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import SlowedDown, free_port, is_ready, wait_until

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "relay.yaml")
BIN = pathlib.Path()
LIMIT = 240  # In seconds, for anything. A hang fails instead of blocking.
SLOW = 6     # Slowdown factor.


class SupervisedRelayTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.servers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.relays = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.health = f"127.0.0.1:{free_port()}"  # Health port of relay 1.
        self.processes = {}
        self.addCleanup(lambda: [process.kill() for process in self.processes.values() if process.poll() is None])

    def start(self, name, program, *arguments, index=None):
        volume = self.folder / "volumes" / (name if program != "worker" else "none")
        command = [str(BIN / f"sluice-{program}"), "--job", JOB, "--supervised", "--set",
                   f"checkpoint={{dir: {volume}, store: shards, interval: 25}}", *arguments]
        environment = os.environ | ({} if index is None else {"JOB_COMPLETION_INDEX": str(index), "WORLD_SIZE": "2"})
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def start_server(self, shard):
        self.start(f"server-{shard}", "server", "--shard", str(shard), "--listen", self.servers[shard], "--coordinator",
                   self.servers[0], "--http-listen", "off")

    def start_relay(self, relay):
        health = ["--health-listen", self.health] if relay == 1 else []
        self.start(f"relay-{relay}", "relay", "--relay", str(relay), "--listen", self.relays[relay], "--coordinator",
                   self.servers[0], *health)

    def start_worker(self, relay, index):
        self.start(f"worker-{relay}-{index}", "worker", "--relay", str(relay), "--coordinator", self.relays[relay], index=index)

    def stop(self, name):
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(LIMIT)

    def logs(self):
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def test_a_stopped_relay_comes_back_and_the_end_is_kept(self):
        for number in (0, 1):
            self.start_server(number)
            self.start_relay(number)
            for index in (0, 1):
                self.start_worker(number, index)
        with SlowedDown(self.processes["worker-1-1"].pid, SLOW):  # The job must not end before all stops.
            wait_until(lambda: list((self.folder / "volumes" / "server-0").glob("step-*/manifest.json")), "a checkpoint", LIMIT)
            self.assertEqual(self.stop("relay-1"), 143, self.logs())
            self.start_relay(1)
            self.assertEqual(self.stop("worker-0-1"), 143, self.logs())
            self.start_worker(0, 1)
        for name in [name for name in self.processes if name.startswith("worker")]:
            self.assertEqual(self.processes[name].wait(LIMIT), 0, self.logs())
        self.assertEqual(len(set(re.findall(r"parameters' sha256 ([0-9a-f]{64})", self.logs()))), 1, self.logs())
        self.assertEqual(len(re.findall(r"worker-[0-3]: finished: 300 steps", self.logs())), 4, self.logs())

        # A relay that starts after the job's end has no part in the job, but must still become ready.
        self.assertEqual(self.stop("relay-1"), 0, self.logs())
        self.start_relay(1)
        wait_until(self.relay_is_ready, "relay 1 is ready", LIMIT)
        for name in ("relay-0", "relay-1", "server-0", "server-1"):
            self.assertEqual(self.stop(name), 0, self.logs())

    def relay_is_ready(self):
        self.assertIsNone(self.processes["relay-1"].poll(), self.logs())
        return is_ready(self.health)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
