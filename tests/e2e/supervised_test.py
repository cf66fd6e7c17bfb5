#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real processes with --supervised, stops them with SIGTERM as Kubernetes does, and restarts them. The job must continue and end with
the parameters of an undisturbed run. Afterwards, the servers must stay up until they are stopped.

usage: supervised_test.py FOLDER_OF_PROGRAMS
"""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import SlowedDown, free_port, is_ready, wait_until

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "survival.yaml")
BIN = pathlib.Path()
LIMIT = 240  # In seconds, for anything. A hang fails instead of blocking.
SLOW = 6     # Slowdown factor.


class SupervisedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ports = [free_port() for _ in range(3)]
        self.processes = {}
        self.addCleanup(lambda: [process.kill() for process in self.processes.values() if process.poll() is None])

    def start(self, kind, number, checkpoints):
        coordinator = f"127.0.0.1:{self.ports[0]}"
        command = [str(BIN / f"sluice-{kind}"), "--job", JOB, "--supervised", "--coordinator", coordinator,
                   "--set", f"checkpoint={{dir: {checkpoints}, store: shards, interval: 25}}"]
        if kind == "server":
            command += ["--shard", str(number), "--listen", f"127.0.0.1:{self.ports[number]}", "--http-listen", "off"]
            if number == 1:
                command += ["--health-listen", f"127.0.0.1:{self.ports[2]}"]
        else:
            command += ["--rank", str(number)]
        with self.log(kind, number).open("a") as log:
            self.processes[kind, number] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def log(self, kind, number):
        return self.folder / f"{kind}-{number}.log"

    def start_all(self, checkpoints):
        for kind in ("server", "worker"):
            for number in (0, 1):
                self.start(kind, number, checkpoints)

    def stop(self, kind, number):
        process = self.processes[kind, number]
        process.send_signal(signal.SIGTERM)
        return process.wait(LIMIT)

    def logs(self):
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def result(self):
        """Returns the parameters' hash of workers that have ended well."""
        for rank in (0, 1):
            try:
                self.assertEqual(self.processes["worker", rank].wait(LIMIT), 0, self.logs())
            except subprocess.TimeoutExpired:
                self.fail(f"worker {rank} has not ended in {LIMIT} s\n{self.logs()}")
        return set(re.findall(r"parameters' sha256 ([0-9a-f]{64})", self.logs()))

    def test_stopped_processes_come_back_and_the_end_is_kept(self):
        self.start_all(self.folder / "undisturbed")
        undisturbed = self.result()
        self.assertEqual(len(undisturbed), 1)
        for number in (0, 1):
            self.assertEqual(self.stop("server", number), 0, self.logs())

        for path in self.folder.glob("*.log"):
            path.unlink()
        checkpoints = self.folder / "stopped"
        self.start_all(checkpoints)
        with SlowedDown(self.processes["worker", 1].pid, SLOW):  # The job must not end before all stops.
            wait_until(lambda: list(checkpoints.glob("step-*/manifest.json")), "a checkpoint", LIMIT)
            for kind, number in (("server", 1), ("worker", 0), ("server", 0)):
                self.assertEqual(self.stop(kind, number), 143, self.logs())
                self.start(kind, number, checkpoints)
        self.assertEqual(self.result(), undisturbed, self.logs())

        # A shard that starts after the job's end has no part in the job, but must still become ready.
        self.assertEqual(self.stop("server", 1), 0, self.logs())
        self.start("server", 1, checkpoints)
        wait_until(lambda: is_ready(f"127.0.0.1:{self.ports[2]}"), "shard 1 is ready", LIMIT)
        for number in (0, 1):
            self.assertEqual(self.stop("server", number), 0, self.logs())


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
