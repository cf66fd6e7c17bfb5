#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real processes, from the job file to the report, and every way to interrupt a run.

usage: end_to_end_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import processes
from processes import command_line, free_port, is_running

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "small.yaml")
BIN = pathlib.Path()
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
ENDLESS = ["--set", "steps=1000000"]


def wait_until(condition, what):
    return processes.wait_until(condition, what, LIMIT)


def program(name):
    return str(BIN / name)


def sluice(*arguments):
    return subprocess.run([program("sluice"), *arguments], capture_output=True, text=True, timeout=LIMIT)


class Run:
    """`sluice run` in the background, with its processes by role once it trains."""

    def __init__(self, folder, *arguments):
        self.process = subprocess.Popen(
            [program("sluice"), "run", JOB, "--log-dir", str(folder), "--http-listen", "off", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.children = {}
        self.coordinator = None

    def find_children(self):
        pid = self.process.pid
        listed = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, listed):
            line = command_line(child)
            name = os.path.basename(line[0])
            if name == "sluice-server":
                shard = line[line.index("--shard") + 1]
                self.children[f"shard {shard}"] = child
                if shard == "0":
                    self.coordinator = line[line.index("--listen") + 1]
                    self.token_file = line[line.index("--token-file") + 1]
            elif name == "sluice-worker":
                self.children[f"worker {line[line.index('--rank') + 1]}"] = child
        return len(self.children) == 4

    def wait_until_training(self):
        wait_until(lambda: self.find_children() or self.process.poll() is not None, "all processes started")

        def is_training():
            if self.process.poll() is not None:
                raise AssertionError("the job ended early: " + self.process.stdout.read())
            done = sluice("status", "--coordinator", self.coordinator, "--token-file", self.token_file, "--json")
            if done.returncode != 0:
                return False
            members = json.loads(done.stdout)["members"]
            return len(members) == 2 and all(int(m.get("progress", {}).get("step", 0)) >= 3 for m in members)

        wait_until(is_training, "step 3")
        return self

    def wait(self):
        output, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, output

    def left(self):
        return [name for name, pid in self.children.items() if is_running(pid)]

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class EndToEnd(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *arguments):
        run = Run(self.folder / "logs", *arguments)
        self.addCleanup(run.stop)
        return run

    def report(self, *arguments):
        path = self.folder / "report.json"
        done = sluice("run", JOB, "--report", str(path), "--http-listen", "off", *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(path.read_text()), done.stdout

    def test_a_job_and_flags_of_0_1_still_work_and_name_the_new_ones(self):
        old = pathlib.Path(__file__).resolve().parents[1] / "compatibility" / "0.1" / "sync" / "job.yaml"
        path = self.folder / "report.json"
        done = sluice("run", str(old), "--json", str(path), "--http", "off", "--set", "steps=20", "--set",
                      f"checkpoint={{dir: {self.folder}/checkpoints, every: 10}}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(path.read_text())["steps"], 20)
        for old_name, new_name in (("--json", "--report"), ("--http", "--http-listen"), ("'server.lease'", "'server.lease_timeout'"),
                                   ("'server.heartbeat'", "'server.heartbeat_interval'"),
                                   ("'checkpoint.every'", "'checkpoint.interval'")):
            self.assertIn(f"{old_name} is now called {new_name}; release 0.3 no longer", done.stdout + done.stderr)

    def test_run_ends_with_a_whole_report(self):
        report, text = self.report()
        self.assertTrue(report["ok"])
        self.assertEqual(report["job"], "small")
        self.assertEqual(report["steps"], 30)
        self.assertEqual((report["workers"], report["shards"], report["seed"]), (2, 2, 7))
        self.assertEqual(report["exit_codes"], {"shard 0": 0, "shard 1": 0, "worker 0": 0, "worker 1": 0})
        self.assertRegex(report["parameters_sha256"], "^[0-9a-f]{64}$")
        self.assertTrue(0 <= report["test_accuracy"] <= 1)
        self.assertGreater(report["test_loss"], 0)
        for key in ("wall_seconds", "bytes_up", "bytes_down"):
            self.assertGreater(report[key], 0, key)
        self.assertGreater(report["ratio_up"], 5)
        self.assertGreater(report["ratio_down"], 2)
        self.assertAlmostEqual(report["ratio_up_fp16"] * 2, report["ratio_up"], places=6)
        self.assertLessEqual(report["step_ms"]["p50"], report["step_ms"]["p95"])
        self.assertIn("test accuracy", text)

    def test_equal_seeds_give_equal_parameters(self):
        first, _ = self.report()
        second, _ = self.report()
        other, _ = self.report("--set", "seed=8")
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])
        self.assertNotEqual(first["parameters_sha256"], other["parameters_sha256"])

    def test_dense(self):
        report, _ = self.report("--dense")
        self.assertTrue(report["dense"])
        self.assertTrue(0.8 < report["ratio_up"] <= 1.01, report["ratio_up"])

    def test_link_rate_slows_down(self):
        report, _ = self.report("--dense", "--link-rate", "10mbit")
        self.assertEqual(report["link_rate"], "10mbit")
        # The bytes of both workers enter through the shards' links, half of them through each link.
        self.assertGreater(report["step_ms"]["p50"], report["bytes_up"] * 8 / 10e6 * 1000 * 0.8)

    def test_other_users_of_the_machine_cannot_join_a_run(self):
        run = self.start(*ENDLESS).wait_until_training()
        done = sluice("status", "--coordinator", run.coordinator)
        self.assertEqual(done.returncode, 1)
        self.assertIn("give --token-file", done.stderr)
        token = pathlib.Path(run.token_file)
        self.assertEqual(token.stat().st_mode & 0o777, 0o600)
        secret = token.read_text().strip()
        for pid in (run.process.pid, *run.children.values()):
            for path in ("cmdline", "environ"):
                self.assertNotIn(secret.encode(), pathlib.Path(f"/proc/{pid}/{path}").read_bytes())
        for log in token.parent.glob("*.log"):
            self.assertNotIn(secret, log.read_text(), log.name)

    def kill_one(self, name):
        run = self.start(*ENDLESS, "--report", str(self.folder / "report.json")).wait_until_training()
        os.kill(run.children[name], signal.SIGKILL)
        code, output = run.wait()  # Long before a lease expires.
        self.assertEqual(code, 1, output)
        self.assertIn(f"{name} (process {run.children[name]}) was killed by signal 9", output)
        self.assertIn(str(self.folder / "logs"), output)
        self.assertEqual(run.left(), [])
        report = json.loads((self.folder / "report.json").read_text())
        self.assertFalse(report["ok"])
        self.assertEqual(report["exit_codes"][name], 137)

    def test_killed_worker(self):
        self.kill_one("worker 1")

    def test_killed_shard(self):
        self.kill_one("shard 1")

    def test_killed_coordinator(self):
        self.kill_one("shard 0")

    def test_ctrl_c_ends_everything(self):
        run = self.start(*ENDLESS).wait_until_training()
        run.process.send_signal(signal.SIGINT)
        code, output = run.wait()
        self.assertEqual(code, 130, output)
        self.assertEqual(run.left(), [])

    def test_second_ctrl_c_kills(self):
        checkpoints = ["--set", f"checkpoint.dir={self.folder}/checkpoints", "--set", "checkpoint.interval=1000000"]
        run = self.start(*ENDLESS, *checkpoints).wait_until_training()
        for pid in run.children.values():
            os.kill(pid, signal.SIGSTOP)  # A stopped process ignores SIGTERM, and no checkpoint is made.
        run.process.send_signal(signal.SIGINT)
        while "Ctrl-C again" not in (line := run.process.stdout.readline()):
            self.assertNotEqual(line, "", "the job ended before the second Ctrl-C")
        run.process.send_signal(signal.SIGINT)
        code, output = run.wait()
        self.assertEqual(code, 130, output)
        self.assertNotIn("warning", output.lower(), "the job must not wait for the checkpoint")
        self.assertEqual(run.left(), [])

    def test_killed_launcher_leaves_nothing(self):
        run = self.start(*ENDLESS).wait_until_training()
        run.process.kill()
        run.wait()
        wait_until(lambda: not run.left(), "everything gone")

    def test_misspelt_key(self):
        path = self.folder / "job.yaml"
        path.write_text(pathlib.Path(JOB).read_text().replace("seed:", "sed:"))
        line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("sed:"))
        for command in ("run", "validate"):
            done = sluice(command, str(path))
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertRegex(done.stdout + done.stderr, rf"job\.yaml:{line}\b")
            self.assertIn("seed", done.stdout + done.stderr)

    def test_wrong_flags(self):
        self.assertEqual(sluice("run").returncode, 2)
        self.assertEqual(sluice("run", JOB, "--link-rate", "fast").returncode, 2)
        self.assertEqual(sluice("--help").returncode, 0)
        self.assertRegex(sluice("--version").stdout, r"sluice \d+\.\d+\.\d+")
        self.assertIn("topk", sluice("codecs").stdout)

    def test_page(self):
        port = free_port()
        done = sluice("run", JOB, "--http-listen", f"127.0.0.1:{port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"http://127.0.0.1:{port}/", done.stdout)

    def start_by_hand(self, name, *arguments):
        process = subprocess.Popen([program(name), "--job", JOB, *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_worker_with_another_model_is_refused(self):
        address = f"127.0.0.1:{free_port()}"
        one_shard = ["--set", "shards=1"]
        self.start_by_hand("sluice-server", *one_shard, "--shard", "0", "--listen", address, "--http-listen", "off")
        self.start_by_hand("sluice-worker", *one_shard, "--coordinator", address, "--rank", "0")
        other = self.start_by_hand("sluice-worker", *one_shard, "--set", "model.hidden=[48]",
                                   "--coordinator", address, "--rank", "1")
        output, _ = other.communicate(timeout=LIMIT)
        self.assertNotEqual(other.returncode, 0)
        self.assertTrue(re.search("job file|model|tensor", output), output)

    def test_wrong_port(self):
        address = f"127.0.0.1:{free_port()}"
        worker = self.start_by_hand("sluice-worker", "--set", "server.join_timeout=2s", "--set",
                                    "server.connect_timeout=2s", "--coordinator", address, "--rank", "0")
        output, _ = worker.communicate(timeout=LIMIT)
        self.assertNotEqual(worker.returncode, 0)
        self.assertIn(address, output)
        for command in ("status", "why"):
            done = sluice(command, "--coordinator", address)
            self.assertEqual(done.returncode, 1)
            self.assertIn(address, done.stderr)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
