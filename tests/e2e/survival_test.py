#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills real processes (SIGKILL) while they train. Whichever processes are lost, the run must end with the undisturbed run's parameters.

usage: survival_test.py FOLDER_OF_PROGRAMS [unittest arguments]
SLUICE_SURVIVAL_SEED=N       repeats the moments and victims of an earlier run, which printed N
SLUICE_SURVIVAL_SECONDS=180  keeps killing for this time
"""
import collections
import fcntl
import json
import math
import os
import pathlib
import random
import re
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
LIMIT = 180  # In seconds, for anything. A hang fails instead of blocking.
STEPS = 500
SLOW = 4  # Slowdown factor until the kill.
EVERY = 25
NAMES = ["worker 0", "worker 1", "shard 0", "shard 1"]
SEED = int(os.environ.get("SLUICE_SURVIVAL_SEED") or random.SystemRandom().randrange(1 << 32))
SECONDS = float(os.environ.get("SLUICE_SURVIVAL_SECONDS") or 0)


def wait_until(condition, what):
    return processes.wait_until(condition, what, LIMIT)


def program(name):
    return str(BIN / name)


def is_free(lock):
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def complete_checkpoints(folder):
    return sorted(path.parent for path in folder.glob("step-*/manifest.json"))


class Run:
    """`sluice run` in the background. Several runs, one after the other, may share a folder."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.report_path = folder / "report.json"
        self.report_path.unlink(missing_ok=True)
        self.output = open(folder / "output", "a+")
        self.output_start = self.output.seek(0, os.SEEK_END)
        self.process = subprocess.Popen(
            [program("sluice"), "run", JOB, "--log-dir", str(folder / "logs"), "--http-listen", "off", "--report",
             str(self.report_path), "--set", f"steps={STEPS}", "--set", f"checkpoint.dir={folder}/checkpoints",
             "--set", f"checkpoint.interval={EVERY}", *arguments],
            stdout=self.output, stderr=subprocess.STDOUT)

    def text(self):
        return (self.folder / "output").read_text()[self.output_start:]

    def logs(self):
        return "".join(f"--- {path.name}\n" + "".join(path.read_text(errors="replace").splitlines(True)[-40:])
                       for path in sorted((self.folder / "logs").glob("*.log")))

    def children(self):
        """Returns the running processes by role."""
        found, pid = {}, self.process.pid
        try:
            listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            return found
        for child in map(int, listed):
            line = command_line(child)
            if not is_running(child):
                continue
            if os.path.basename(line[0]) == "sluice-server":
                found[f"shard {line[line.index('--shard') + 1]}"] = child
                if line[line.index("--shard") + 1] == "0":
                    self.coordinator = line[line.index("--listen") + 1]
                    self.token_file = line[line.index("--token-file") + 1]
            elif os.path.basename(line[0]) == "sluice-worker":
                found[f"worker {line[line.index('--rank') + 1]}"] = child
        return found

    def ended(self):
        return self.process.poll() is not None

    def step(self):
        """Returns the step that all shards have closed, from their last reports, or 0 if it is not known."""
        done = subprocess.run([program("sluice"), "status", "--coordinator", self.coordinator, "--token-file", self.token_file,
                               "--json"],
                              capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            return 0
        return min((int(shard["highest_closed_step"]) for shard in json.loads(done.stdout)["shards"]), default=0)

    def wait_until_step(self, step, processes=len(NAMES)):
        def is_there():
            if self.ended():
                raise AssertionError("the job ended early: " + self.text() + self.logs())
            return self.step() >= step
        wait_until(lambda: len(self.children()) == processes or self.ended(), "all processes started")
        wait_until(is_there, f"step {step}")

    def kill(self, names):
        """Kills all running processes at once."""
        children = self.children()
        for name in names:
            if name in children:
                os.kill(children[name], signal.SIGKILL)

    def kill_all(self):
        self.process.kill()
        self.wait()

    def wait(self):
        try:
            return self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end in {LIMIT} s: " + self.text() + self.logs()) from None

    def stop(self):
        if not self.ended():
            self.process.kill()
            self.process.wait()
        self.output.close()


def parameters_of_undisturbed(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([program("sluice"), "run", JOB, "--quiet", "--http-listen", "off", "--report", str(report), "--set",
                        f"steps={STEPS}", "--set", "server.lease_timeout=3600s", *arguments], check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())["parameters_sha256"]


class Survival(unittest.TestCase):
    maxDiff = None
    exchanges = STEPS  # Number of exchanges that shards count.

    @classmethod
    def setUpClass(cls):
        print(f"SLUICE_SURVIVAL_SEED={SEED}", flush=True)
        cls.expected = parameters_of_undisturbed()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The seed includes the test's name, so that a single test behaves the same as among the others.
        self.random = random.Random(f"{SEED} {self.id().rpartition('.')[2]}")

    def start(self, *arguments):
        run = Run(self.folder, *arguments)
        self.addCleanup(run.stop)
        return run

    def left(self):
        """Returns the processes of any run in the test's folder."""
        lines = {int(entry): " ".join(command_line(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        return {pid: line for pid, line in lines.items() if str(self.folder) in line and is_running(pid)}

    def all_gone(self):
        """Also checks the locks, because a killed process loses its command line some time before its files and locks."""
        return not self.left() and all(is_free(lock) for lock in self.folder.glob("checkpoints/**/lock"))

    def finish(self, run):
        """Waits for the end. The parameters must be those of the undisturbed run."""
        code = run.wait()
        self.assertEqual(code, 0, run.text() + run.logs())
        report = json.loads(run.report_path.read_text())
        self.assertEqual(report["parameters_sha256"], self.expected, run.text() + run.logs())
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(self.left(), {})
        self.assertTrue(json.loads((self.folder / "checkpoints" / "run.json").read_text())["finished"])
        return report

    def wait_for_step(self, run, step, condition=lambda: True, processes=len(NAMES)):
        """Waits for a step and for `condition`, with the job slowed down so that it does not end first. Shards report every 200 ms."""
        run.wait_until_step(1, processes)
        with SlowedDown(run.children()["worker 0"], SLOW):
            run.wait_until_step(step, processes)
            wait_until(lambda: condition() or run.ended(), "what was waited for")

    def wait_for_random_moment(self, run, condition=lambda: True):
        """Waits for a moment in the first quarter of training, so that the end does not come first."""
        step = self.random.randrange(1, self.exchanges // 4)
        self.wait_for_step(run, step, condition)
        time.sleep(self.random.uniform(0, 0.2))
        return step

    def kill_and_finish(self, *names, repaired=True, arguments=()):
        """Kills the processes and finishes the run. `repaired` is True if the job must be repaired in place, from the other processes'
        data, False if it must roll back to a checkpoint, and None if either may happen."""
        run = self.start(*arguments)
        step = self.wait_for_random_moment(run)
        print(f"{self.id()}: killing {', '.join(names)} after step {step}", flush=True)
        run.kill(names)
        report = self.finish(run)
        self.assertEqual(set(report["restarts"]), set(names), run.text())
        if repaired:
            self.assertEqual(report["rollbacks"], 0, run.text() + run.logs())
            self.assertGreaterEqual(report["repairs"], 1, run.text() + run.logs())
        elif repaired is None:
            self.assertGreaterEqual(report["rollbacks"] + report["repairs"], 1, run.text())
        else:
            self.assertGreaterEqual(report["rollbacks"], 1, run.text())
        for name in names:
            self.assertRegex(run.text(), rf"{name} \(process \d+\) was killed by signal 9")
        self.assertRegex(run.text(), r"step")
        return run

    def test_undisturbed(self):
        report = self.finish(self.start())
        self.assertEqual((report["restarts"], report["rollbacks"]), ({}, 0))
        self.assertEqual(len(complete_checkpoints(self.folder / "checkpoints")), 2)

    def test_killed_worker(self):
        self.kill_and_finish(self.random.choice(["worker 0", "worker 1"]))

    def test_killed_shard(self):
        self.kill_and_finish("shard 1")

    def test_killed_coordinator(self):
        self.kill_and_finish("shard 0")

    def test_killed_worker_and_shard(self):
        self.kill_and_finish(self.random.choice(["worker 0", "worker 1"]), self.random.choice(["shard 0", "shard 1"]))

    def test_killed_shards(self):
        self.kill_and_finish("shard 0", "shard 1")

    def test_killed_workers(self):
        # The job rolls back to a checkpoint. If the second loss is noticed only after the first process was replaced, two repairs in place
        # follow instead.
        self.kill_and_finish("worker 0", "worker 1", repaired=None)

    def test_optimizer_on_shards(self):
        self.kill_one_after_the_other("--set", "optimizer.location=shards")

    def test_local_steps(self):
        self.exchanges = STEPS // 5
        self.kill_one_after_the_other("--set", "mode=local_sgd", "--set", "local_steps=5")

    def test_streamed_local_steps(self):
        self.exchanges = STEPS // 5
        changes = ("mode=local_sgd", "local_steps=10", "fragments=2", "fragment_delay=2")
        self.kill_one_after_the_other(*(word for change in changes for word in ("--set", change)))

    def kill_one_after_the_other(self, *arguments):
        """Runs a job with these changes, and kills a shard and a worker in random order."""
        self.expected = parameters_of_undisturbed(*arguments)
        victims = [self.random.choice(["shard 0", "shard 1"]), self.random.choice(["worker 0", "worker 1"])]
        self.kill_in_turn(*([victim] for victim in self.random.sample(victims, 2)), arguments=arguments)

    def kill_in_turn(self, *groups, arguments):
        """Kills each group of processes after the job has made a checkpoint with the successors of the group before it, and finishes the run."""
        run, before = self.start(*arguments), None

        def newest():
            return complete_checkpoints(self.folder / "checkpoints")[-1:]
        for names in groups:
            step = self.wait_for_random_moment(run, lambda: before is None or newest() > before)
            before, killed = newest(), run.children()
            print(f"{self.id()}: killing {', '.join(names)} after step {step}", flush=True)
            run.kill(names)
            wait_until(lambda: run.ended() or all(run.children().get(name) not in (None, killed[name]) for name in names), "the successors")
        report = self.finish(run)
        self.assertEqual(set(report["restarts"]), {name for names in groups for name in names}, run.text())
        self.assertGreaterEqual(report["rollbacks"] + report["repairs"], len(groups), run.text())

    def test_nothing_is_kept(self):
        self.kill_and_finish(self.random.choice(NAMES), repaired=False, arguments=["--set", "checkpoint.replay_limit=0"])

    def test_killed_run_is_resumed(self):
        run = self.start()
        step = self.wait_for_random_moment(run)
        print(f"{self.id()}: killing all after step {step}", flush=True)
        run.kill_all()
        wait_until(self.all_gone, "all gone")
        refused = self.start()
        self.assertEqual(refused.wait(), 2, refused.text())
        self.assertIn("--resume", refused.text())
        self.finish(self.start("--resume"))
        again = self.start("--resume")
        self.assertEqual(again.wait(), 2, again.text())
        self.assertIn("finished run", again.text())

    def test_store_of_shards(self):
        """Checkpoints go only to the servers' folders. Whichever processes die, the run must end with the same parameters."""
        groups = [["shard 1"], [self.random.choice(["worker 0", "worker 1"])], ["shard 0", "worker 1"]]
        self.kill_in_turn(*self.random.sample(groups, 3), arguments=["--set", "checkpoint.store=shards"])
        checkpoints = self.folder / "checkpoints"
        newest = complete_checkpoints(checkpoints)[-1].name
        self.assertEqual({path.name for path in (checkpoints / newest).iterdir()}, {"manifest.json"})
        # A process that is killed during a write leaves an unfinished file, or its successor writes another file beside it.
        names = [{re.sub(r"(?<=term)-\d+|\.\d+-[0-9a-f]{8}(?=\.)", "", path.name)
                  for path in (checkpoints / f"shard-{shard}" / newest).iterdir() if path.suffix != ".unfinished"} for shard in (0, 1)]
        self.assertEqual(names, [{"parameters.pt", "shard-0-term.state", "worker-0-term.state"},
                                 {"shard-1-term.state", "worker-1-term.state"}])
        verified = subprocess.run([program("sluice"), "checkpoint", "verify", str(checkpoints)],
                                  capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        self.assertIn(": good, 5 parts", verified.stdout)

    def test_other_workers_go_on(self):
        """Two workers, then three, then one, in one run; the loss keeps falling."""
        for store in ("path", "shards"):
            with tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                arguments = ["--set", f"checkpoint.store={store}"]
                run = self.start(*arguments)
                self.wait_for_step(run, EVERY, lambda: complete_checkpoints(self.folder / "checkpoints"))
                run.kill_all()
                wait_until(self.all_gone, "all gone")
                run = self.start("--resume", "--set", "workers=3", *arguments)
                self.wait_for_step(run, 2 * EVERY, self.of_three, processes=5)
                run.kill_all()
                wait_until(self.all_gone, "all gone")
                run = self.start("--resume", "--set", "workers=1", *arguments)
                self.assertEqual(run.wait(), 0, run.text() + run.logs())
                report = json.loads(run.report_path.read_text())
                self.assertEqual(report["steps"], STEPS)
                self.assertLess(report["train_loss"], 0.5 * math.log(10), "guessing gives a loss of log 10")
                log = (self.folder / "logs" / "shard-0.log").read_text()
                self.assertIn("the run had 2 workers and continues with 3", log)
                self.assertIn("the run had 3 workers and continues with 1", log)
                self.assertEqual(self.left(), {})

    def of_three(self):
        newest = complete_checkpoints(self.folder / "checkpoints")[-1:]
        return newest and json.loads((newest[0] / "manifest.json").read_text())["world_size"] == 3

    def test_damaged_newest_checkpoint(self):
        checkpoints = self.folder / "checkpoints"
        run = self.start()
        self.wait_for_random_moment(run, lambda: len(complete_checkpoints(checkpoints)) >= 2)
        run.kill_all()
        wait_until(self.all_gone, "all gone")
        before, newest = complete_checkpoints(checkpoints)[-2:]
        victim = self.random.choice(sorted(newest.glob("*.state")))
        print(f"{self.id()}: damaging {victim.name} of {newest.name}", flush=True)
        content = bytearray(victim.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        victim.write_bytes(content)
        resumed = self.start("--resume")
        self.finish(resumed)
        log = (self.folder / "logs" / "shard-0.log").read_text()
        self.assertIn(victim.name, log)
        self.assertRegex(log, rf"step {int(before.name.partition('-')[2])}\b")

    def test_ctrl_c_leaves_a_checkpoint(self):
        # With this interval, the job makes only the requested checkpoint.
        seldom = ["--set", f"checkpoint.interval={STEPS * 10}"]
        run = self.start(*seldom)
        step = self.wait_for_random_moment(run)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(), 130, run.text())
        self.assertIn("sluice run --resume " + JOB, run.text())
        self.assertEqual(self.left(), {})
        newest = complete_checkpoints(self.folder / "checkpoints")[-1]
        self.assertGreaterEqual(int(newest.name.partition("-")[2]), step, run.text() + run.logs())
        self.finish(self.start("--resume", *seldom))

    @unittest.skipUnless(SECONDS, "SLUICE_SURVIVAL_SECONDS is not set")
    def test_kills_for_a_long_time(self):
        """Starts one run after the other. In each run, every process is killed repeatedly, at random moments."""
        end = time.monotonic() + SECONDS
        kills = collections.Counter()
        while time.monotonic() < end:
            with tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                self.kill_until(end, kills)
        print(f"{self.id()}: {dict(kills)}", flush=True)

    def kill_until(self, end, kills):
        run = self.start()
        while True:
            # The launcher is among the victims, so that no process exceeds one launcher's restart limit.
            for victim in self.random.sample(NAMES + ["two", "all"], len(NAMES) + 2):
                moment = time.monotonic() + self.random.uniform(0, 4)
                while time.monotonic() < moment and not run.ended():
                    time.sleep(0.02)
                if run.ended() or time.monotonic() > end or ("shard 0" in run.children() and
                                                             run.step() > STEPS * 0.7):
                    self.finish(run)
                    return
                kills[victim] += 1
                print(f"{self.id()}: killing {victim}", flush=True)
                if victim == "all":
                    run.kill_all()
                    wait_until(self.all_gone, "all gone")
                    record = self.folder / "checkpoints" / "run.json"
                    if record.exists() and json.loads(record.read_text())["finished"]:
                        return  # No process was left to report it.
                    run = self.start(*(["--resume"] if record.exists() else []))
                else:
                    run.kill(self.random.sample(NAMES, 2) if victim == "two" else [victim])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
