#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts and restores the network links of a real job's workers (bench/shaped.sh). A cut that is longer than a lease must remove the worker
until it joins again. A shorter cut must have no effect. Exits with 77 (skipped) if namespaces or links cannot be made.

usage: network_cut_test.py SHAPED_SH FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

from processes import wait_until

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "survival.yaml")
PORT = 7070  # In a separate namespace.
LIMIT = 180  # In seconds, for anything. A hang fails instead of blocking.
STEPS = 1500
WORKERS = 4
# With these links, a step takes a tenth of a second on any processor, so that the job does not end while a process is stopped. After the
# checks, the links are fast again.
SLOW = "4mbit"


class NetworkCut(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = {}
        self.addCleanup(self.end_all)
        self.set_rate(SLOW)

    def end_all(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for rank in range(WORKERS):
            self.link(rank, "up")

    def set_rate(self, rate):
        subprocess.run([SHAPED, "--set", rate], check=True)

    def link(self, rank, state):
        subprocess.run(["ip", "-n", "bridge", "link", "set", f"to-w{rank}", state], check=True)

    def start(self, name, program, *arguments):
        command = ["ip", "netns", "exec", name, str(BIN / program), "--job", JOB]
        for setting in ("membership=elastic", "shards=1", f"workers={WORKERS}", "min_workers=2", f"steps={STEPS}",
                        f"checkpoint={{dir: {self.folder}/checkpoints, interval: 10}}", f"server.lease_timeout={self.lease}"):
            command += ["--set", setting]
        with self.log(name).open("w") as log:
            self.processes[name] = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)

    def start_all(self, lease):
        self.lease = lease
        host = os.environ["SHAPED_SERVER_HOSTS"]
        self.start("s0", "sluice-server", "--listen", f"{host}:{PORT}", "--http-listen", "off",
                   "--allow-anonymous")
        for rank in range(WORKERS):
            self.start(f"w{rank}", "sluice-worker", "--rank", str(rank), "--coordinator", f"{host}:{PORT}", "--report",
                       str(self.report(rank)))
        wait_until(self.newest_checkpoint, "a checkpoint", LIMIT)

    def report(self, rank):
        return self.folder / f"report-{rank}.json"

    def log(self, name):
        return self.folder / f"{name}.log"

    def logs(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def newest_checkpoint(self):
        steps = [int(re.search(r"step-(\d+)", str(path)).group(1))
                 for path in self.folder.glob("checkpoints/step-*/manifest.json")]
        return max(steps, default=0)

    def says(self, name, text):
        wait_until(lambda: re.search(text, self.log(name).read_text()), f"{name} says {text}", LIMIT)

    def finish(self):
        self.set_rate("none")
        for name, process in self.processes.items():
            try:
                self.assertEqual(process.wait(LIMIT), 0, self.logs())
            except subprocess.TimeoutExpired:
                self.fail(f"{name} has not ended in {LIMIT} s\n{self.logs()}")
        reports = [json.loads(self.report(rank).read_text()) for rank in range(WORKERS)]
        self.assertEqual(len({report["parameters_sha256"] for report in reports}), 1, reports)
        self.assertEqual({report["steps"] for report in reports}, {STEPS})
        self.assertNotIn("goes back", self.logs(), "the job must not roll back")

    def test_longer_than_a_lease(self):
        self.start_all(lease="3s")
        self.link(1, "down")
        self.says("s0", "rank 1 .* did not report")
        before = self.newest_checkpoint()
        wait_until(lambda: self.newest_checkpoint() > before, "the others go on", LIMIT)
        self.assertIsNone(self.processes["w1"].poll(), self.logs())
        self.link(1, "up")
        self.says("w1", "joining again")
        self.says("s0", "rank 1 .* joins? with the checkpoint")
        self.finish()

    def test_shorter_than_a_lease(self):
        self.start_all(lease="60s")
        self.link(1, "down")
        self.stands_still()
        self.link(1, "up")
        self.finish()
        self.assertNotIn("did not report", self.logs())
        self.assertNotIn("joining again", self.logs())

    def stands_still(self):
        """Waits until, for a second, no packet has passed the link and no checkpoint has been completed."""
        seen, since = None, time.monotonic()

        def quiet():
            nonlocal seen, since
            now = self.newest_checkpoint(), self.packets()
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > 1

        wait_until(quiet, "the job stands still", LIMIT)

    def packets(self):
        shown = subprocess.run(["ip", "-n", "bridge", "-json", "-statistics", "link", "show", "to-w1"],
                               stdout=subprocess.PIPE, check=True).stdout
        return json.loads(shown)[0]["stats64"]["rx"]["packets"]


def main():
    shaped = [SHAPED, "--workers", str(WORKERS), "--shards", "1", "--rate", "none", "--exec"]
    probe = subprocess.run([*shaped, "true"], stderr=subprocess.PIPE, text=True)
    if probe.returncode == 77:
        print(f"skipped: {probe.stderr.strip()}")
        return 77
    return subprocess.run([*shaped, sys.executable, __file__, SHAPED, str(BIN), *sys.argv[1:]]).returncode


if __name__ == "__main__":
    SHAPED = str(pathlib.Path(sys.argv.pop(1)).resolve())
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if "SHAPED_RATE" not in os.environ:
        sys.exit(main())
    unittest.main(verbosity=2)
