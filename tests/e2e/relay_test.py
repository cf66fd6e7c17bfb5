#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs two racks of real processes. Without compression, they must end with the same parameters as without relays. With checkpoints, the job
must end with the parameters of the undisturbed run, whichever processes are killed (SIGKILL). Without checkpoints, a killed process must end
the job with a message, and no process may be left.

usage: relay_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import processes
from processes import SlowedDown, command_line, is_running

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "relay.yaml")
BIN = pathlib.Path()
LIMIT = 180  # In seconds, for anything. A hang fails instead of blocking.
SLOW = 6     # Slowdown factor until the kill.
KINDS = {"sluice-server": ("shard", "--shard"), "sluice-relay": ("relay", "--relay"),
         "sluice-worker": ("worker", "--rank")}


def program(name):
    return str(BIN / name)


class Run:
    """`sluice run` in the background."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.report_path = folder / "report.json"
        self.output = open(folder / "output", "w+")
        self.coordinator = ""
        self.process = subprocess.Popen(
            [program("sluice"), "run", JOB, "--log-dir", str(folder / "logs"), "--http-listen", "off", "--report",
             str(self.report_path), *arguments], stdout=self.output, stderr=subprocess.STDOUT)

    def text(self):
        logs = "".join(f"--- {path.name}\n" + "".join(path.read_text(errors="replace").splitlines(True)[-30:])
                       for path in sorted((self.folder / "logs").glob("*.log")))
        return (self.folder / "output").read_text() + logs

    def children(self):
        found, pid = {}, self.process.pid
        try:
            listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return found
        for child in map(int, listed):
            line = command_line(child)
            if os.path.basename(line[0]) not in KINDS or not is_running(child):
                continue
            kind, flag = KINDS[os.path.basename(line[0])]
            found[f"{kind} {line[line.index(flag) + 1]}"] = child
            if found.get("shard 0") == child:
                self.coordinator = line[line.index("--listen") + 1]
                self.token_file = line[line.index("--token-file") + 1]
        return found

    def ended(self):
        return self.process.poll() is not None

    def status(self):
        done = subprocess.run([program("sluice"), "status", "--coordinator", self.coordinator, "--token-file", self.token_file,
                               "--json"],
                              capture_output=True, text=True, timeout=LIMIT)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def wait_until_step(self, step):
        def is_there():
            assert not self.ended(), "the job ended early: " + self.text()
            shards = self.status().get("shards", [])
            return shards and min(int(shard["highest_closed_step"]) for shard in shards) >= step
        processes.wait_until(lambda: len(self.children()) == 8 or self.ended(), "all processes started", LIMIT)
        processes.wait_until(is_there, f"step {step}", LIMIT)

    def kill(self, *names):
        children = self.children()
        for name in names:
            os.kill(children[name], signal.SIGKILL)

    def wait(self):
        try:
            return self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end in {LIMIT} s: " + self.text()) from None

    def stop(self):
        if not self.ended():
            self.process.kill()
            self.process.wait()
        self.output.close()


class Relay(unittest.TestCase):
    expected = {}  # By settings.

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments):
        run = Run(self.folder, *arguments)
        self.addCleanup(run.stop)
        return run

    def left(self):
        lines = {int(entry): " ".join(command_line(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        return {pid: line for pid, line in lines.items() if str(self.folder) in line and is_running(pid)}

    def finish(self, run):
        self.assertEqual(run.wait(), 0, run.text())
        self.assertEqual(self.left(), {})
        return json.loads(run.report_path.read_text())

    def undisturbed(self, *settings):
        if settings not in Relay.expected:
            # No process may be lost here, even on a busy machine.
            Relay.expected[settings] = self.finish(self.start(*settings, "--set", "server.lease_timeout=3600s"))["parameters_sha256"]
        return Relay.expected[settings]

    def survive(self, *groups, settings=(), step=60):
        """Kills each group of processes after the job has made a checkpoint with the successors of the group before it."""
        expected = self.undisturbed(*settings)
        run = self.start(*settings, "--set", f"checkpoint.dir={self.folder}/checkpoints", "--set", "checkpoint.interval=25")
        run.wait_until_step(1)
        with SlowedDown(run.children()["worker 1"], SLOW):
            for names in groups:
                run.wait_until_step(step)
                newest = self.checkpoints()
                run.kill(*names)
                processes.wait_until(lambda: self.checkpoints() > newest or run.ended(), "a checkpoint after the loss", LIMIT)
        report = self.finish(run)
        self.assertEqual(report["parameters_sha256"], expected, run.text())
        self.assertEqual(set(report["restarts"]), {name for names in groups for name in names}, run.text())

    def checkpoints(self):
        """Returns the newest complete checkpoint, if there is one."""
        return sorted(self.folder.glob("checkpoints/step-*/manifest.json"))[-1:]

    def test_lossless_ends_as_without_relays(self):
        none = ["--set", "compression={uplink: none, downlink: none}", "--set", "steps=60", "--set", "server.lease_timeout=3600s"]
        racks = self.finish(self.start(*none, "--set", "relays.uplink=none"))
        flat = self.folder / "flat.yaml"
        flat.write_text("".join(line for line in pathlib.Path(JOB).read_text().splitlines(True)
                                if not line.startswith("relays")))
        report = self.folder / "flat.json"
        subprocess.run([program("sluice"), "run", str(flat), "--quiet", "--http-listen", "off", "--report", str(report), *none],
                       check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
        plain = json.loads(report.read_text())
        self.assertAlmostEqual(racks["train_loss"], plain["train_loss"], places=4)
        self.assertEqual(racks["test_accuracy"], plain["test_accuracy"])

    def test_a_relay_that_is_killed_without_checkpoints(self):
        run = self.start("--set", "steps=100000")
        run.wait_until_step(20)
        run.kill("relay 1")
        self.assertNotEqual(run.wait(), 0)
        self.assertIn("relay 1", run.text())
        self.assertEqual(self.left(), {})

    def test_links_of_a_given_rate(self):
        self.finish(self.start("--link-rate", "200Mbit", "--set", "steps=30", "--set", "control={policy: auto}",
                               "--set", "compression={uplink: fp16, downlink: fp16}"))

    def test_a_relay_then_a_worker_in_a_rack_then_a_shard(self):
        self.survive(["relay 0"], ["worker 3"], ["shard 1"])

    def test_a_relay_in_mode_local_sgd(self):
        self.survive(["relay 1"], settings=("--set", "mode=local_sgd", "--set", "local_steps=2"))

    def test_a_relay_while_plans_change_codecs_and_momentum(self):
        schedule = "control={policy: schedule, schedule: cyclic, dense_steps: 20, start: 0.5, end: 0.02, steps: 40, stages: 4}"
        self.survive(["relay 1"], settings=("--set", schedule, "--set", "optimizer.momentum=0.9"))

    # A relay that is lost rolls the whole job back. The result depends on the order of the racks' updates.
    def test_a_relay_in_mode_ssp(self):
        run = self.start("--set", "mode=ssp", "--set", "staleness=2", "--set", "optimizer.location=shards",
                         "--set", f"checkpoint.dir={self.folder}/checkpoints", "--set", "checkpoint.interval=25")
        run.wait_until_step(1)
        with SlowedDown(run.children()["worker 1"], SLOW):
            run.wait_until_step(60)
            run.kill("relay 1")
        report = self.finish(run)
        self.assertGreaterEqual(report["restarts"]["relay 1"], 1)
        self.assertIn("continues after step", run.text())
        self.assertGreater(report["test_accuracy"], 0.9)

    def test_a_relay_of_each_rack_and_a_worker(self):
        self.survive(["relay 0", "relay 1", "worker 2"])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
