#!/usr/bin/env python3
"""A worker that stands still most of the time, among real ones that train: with a quorum the others do not wait for it,
it takes part all the same, and what is learned is learned.

usage: quorum_test.py FOLDER_OF_PROGRAMS [unittest arguments]
bench/straggler.py measures what it saves.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import processes
from processes import SlowedDown, command_line, is_running

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "survival.yaml")
BIN = pathlib.Path()
LIMIT = 120  # Seconds for anything; a hang fails instead of blocking.
SLOW = 4     # Times slower.
STEPS = 600


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
        """`sluice run` of four workers, the last of which is slowed down."""
        output = open(self.folder / "output", "w")
        self.addCleanup(output.close)
        run = subprocess.Popen(
            [str(BIN / "sluice"), "run", JOB, "--quiet", "--http", "off", "--log-dir", str(self.folder / "logs"),
             "--json", str(self.folder / "report.json"), "--set", "workers=4", "--set", "shards=1", "--set",
             f"steps={STEPS}", *arguments], stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        pid = processes.wait_until(lambda: self.worker(run, 3), "the worker started", LIMIT)
        slowed = SlowedDown(pid, SLOW)
        self.addCleanup(slowed.end)
        return run

    def finish(self, run):
        """Its report and logs."""
        code = run.wait(timeout=LIMIT)
        log = (self.folder / "output").read_text()
        log += "".join(path.read_text(errors="replace") for path in sorted((self.folder / "logs").glob("*.log")))
        self.assertEqual(code, 0, log)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["steps"], STEPS)
        return report, log

    def test_others_do_not_wait_for_a_slow_worker(self):
        plain, _ = self.finish(self.start())
        quorum, log = self.finish(self.start("--set", "quorum=3", "--set", "grace=1ms"))
        print("seconds: all {:.2f}, 3 of 4 {:.2f}; accuracy: all {:.3f}, 3 of 4 {:.3f}".format(
            plain["train_seconds"], quorum["train_seconds"], plain["test_accuracy"], quorum["test_accuracy"]), flush=True)
        # Loose: the cores are few, and shared by all of them.
        self.assertLess(quorum["train_seconds"], 0.8 * plain["train_seconds"], log)
        self.assertGreater(quorum["test_accuracy"], plain["test_accuracy"] - 0.1, "it learns all the same")
        self.assertIn("this worker was late", log, "and the slow one catches up")

    def test_a_lost_worker_takes_the_job_back(self):
        checkpoints = self.folder / "checkpoints"
        run = self.start("--set", "quorum=3", "--set", "grace=1ms", "--set", f"checkpoint.dir={checkpoints}", "--set",
                         "checkpoint.every=50")
        processes.wait_until(lambda: list(checkpoints.glob("step-*/manifest.json")), "a checkpoint", LIMIT)
        os.kill(self.worker(run, 1), signal.SIGKILL)
        report, log = self.finish(run)
        self.assertGreaterEqual(report["rollbacks"], 1, log)
        self.assertEqual(report["repairs"], 0, log)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
