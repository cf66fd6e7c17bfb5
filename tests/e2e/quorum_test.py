#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with real workers and a quorum while one worker is stopped, always or most of the time. The others must not wait for the stopped
worker, that worker must still take part, and the training must succeed.

usage: quorum_test.py FOLDER_OF_PROGRAMS [unittest arguments]
bench/straggler.py measures the time saved.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import processes
from processes import SlowedDown, command_line, free_port, is_running

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "survival.yaml")
BIN = pathlib.Path()
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
SLOW = 4     # Slowdown factor.
STEPS = 600
ENDLESS = "steps=100000000"  # The test ends it.
FAR = 100    # In steps; more than any worker can be ahead of one that the job waits for.


class Quorum(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def worker(self, run, rank):
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        for child in map(int, children):
            line = command_line(child)
            if is_running(child) and os.path.basename(line[0]) == "sluice-worker":
                if line[line.index("--rank") + 1] == str(rank):
                    return child
        return None

    def start(self, *arguments):
        """`sluice run` of four workers, three of which make a quorum."""
        output = open(self.folder / "output", "w")
        self.addCleanup(output.close)
        port = free_port()
        self.page = f"http://127.0.0.1:{port}"
        # A busy machine must not lose a process.
        changes = ("workers=4", "shards=1", "quorum=3", "straggler_timeout=1ms", "server.lease_timeout=3600s", *arguments)
        run = subprocess.Popen(
            [str(BIN / "sluice"), "run", JOB, "--quiet", "--http-listen", f"127.0.0.1:{port}", "--log-dir", str(self.folder / "logs"),
             "--report", str(self.folder / "report.json"), *(word for change in changes for word in ("--set", change))],
            stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def log(self):
        log = (self.folder / "output").read_text()
        return log + "".join(path.read_text(errors="replace") for path in sorted((self.folder / "logs").glob("*.log")))

    def fetch(self, path):
        try:
            with urllib.request.urlopen(f"{self.page}/{path}", timeout=LIMIT) as answer:
                return answer.read().decode()
        except OSError:
            return ""  # Not up yet.

    def status(self):
        return json.loads(self.fetch("status.json") or '{"step": 0, "workers": [], "checkpoint": null}')

    def metric(self, name):
        return sum(float(line.split()[-1]) for line in self.fetch("metrics").splitlines() if line.startswith(name + "{"))

    def wait_until(self, condition, what):
        try:
            return processes.wait_until(condition, what, LIMIT)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def wait_for_step(self, step):
        self.wait_until(lambda: self.status()["step"] >= step, f"step {step}")

    def interrupt(self, run):
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=LIMIT), 130, self.log())

    def test_others_do_not_wait_for_a_worker_that_stands_still(self):
        run = self.start(ENDLESS)
        self.wait_for_step(1)
        stopped = self.worker(run, 3)
        os.kill(stopped, signal.SIGSTOP)
        try:
            # If the job waited for the stopped worker, the next steps would not close.
            self.wait_for_step(self.status()["step"] + FAR)
            step = self.status()["step"]
            self.assertGreater(self.metric("sluice_quorum_bundles_total"), 0, "bundles that close without the stopped worker are counted")
        finally:
            os.kill(stopped, signal.SIGCONT)
        self.wait_until(lambda: "this worker was late" in (self.folder / "logs" / "worker-3.log").read_text(), "that it was late")
        self.wait_until(lambda: any(worker["rank"] == 3 and worker["step"] > step for worker in self.status()["workers"]),
                        f"that it has caught up with step {step}")
        self.interrupt(run)

    def learns_with_a_slow_worker(self, *arguments):
        run = self.start(f"steps={STEPS}", *arguments)
        pid = self.wait_until(lambda: self.worker(run, 3), "the worker started")
        slowed = SlowedDown(pid, SLOW)
        self.addCleanup(slowed.end)
        self.assertEqual(run.wait(timeout=LIMIT), 0, self.log())
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["steps"], STEPS)
        self.assertGreater(report["test_accuracy"], 0.9, "without a quorum, every sample is classified correctly")

    def test_learns_with_a_slow_worker(self):
        self.learns_with_a_slow_worker()

    def test_learns_with_a_slow_worker_and_local_steps(self):
        self.learns_with_a_slow_worker("mode=local_sgd", "local_steps=6", "fragments=3", "fragment_delay=1", "late_decay=0.5")

    def test_a_lost_worker_takes_the_job_back(self):
        run = self.start(ENDLESS, f"checkpoint.dir={self.folder}/checkpoints", "checkpoint.interval=50")
        self.wait_until(lambda: (self.status()["checkpoint"] or {"step": 0})["step"] > 0, "a checkpoint")
        os.kill(self.worker(run, 1), signal.SIGKILL)
        self.wait_until(lambda: self.status()["checkpoint"]["rollbacks"] >= 1, "a rollback")
        after = self.status()
        self.wait_until(lambda: self.status()["checkpoint"]["step"] > after["checkpoint"]["step"], "another checkpoint")
        self.assertEqual(self.status()["checkpoint"]["repairs"], 0, self.log())
        self.interrupt(run)

    def test_a_lost_worker_of_an_elastic_job_comes_back(self):
        run = self.start(ENDLESS, "membership=elastic", "min_workers=2", f"checkpoint.dir={self.folder}/checkpoints", "checkpoint.interval=50",
                         "mode=local_sgd", "local_steps=6", "fragments=3", "fragment_delay=1", "late_decay=0.5")
        self.wait_until(lambda: (self.status()["checkpoint"] or {"step": 0})["step"] > 0, "a checkpoint")
        os.kill(self.worker(run, 1), signal.SIGKILL)
        self.wait_until(lambda: "takes part once it has caught up" in self.log(), "that the worker has joined again")
        step = self.status()["step"]
        self.wait_until(lambda: any(worker["rank"] == 1 and worker["step"] > step for worker in self.status()["workers"]),
                        f"that it has caught up with step {step}")
        self.assertEqual(self.status()["checkpoint"]["rollbacks"], 0, self.log())
        self.interrupt(run)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
