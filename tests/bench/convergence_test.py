# SPDX-License-Identifier: Apache-2.0
"""Tests bench/convergence.py: its figures with a fake `sluice`, and with the real one on a tiny job.

usage: convergence_test.py [FOLDER_OF_PROGRAMS]    without a folder, no real run
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))
import convergence  # noqa: E402

BIN = None
# The compressed run's accuracy is 0.01 lower, and its loss is higher by 0.01 x the seed.
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
assert words[:2] == ["run", "job.yaml"] and "--quiet" in words, words
sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
assert sets[:-1] == ["steps=5"], sets
seed = int(sets[-1].removeprefix("seed="))
if seed == 13: sys.exit("worker 1 ended")
dense = "--dense" in words
pathlib.Path(words[words.index("--report") + 1]).write_text(json.dumps({
    "test_loss": 1.0 if dense else 1.0 + seed / 100, "test_accuracy": 0.75 if dense else 0.74, "steps": 5, "workers": 2, "shards": 2,
    "parameters": 1000, "bytes_up": 4000.0 if dense else 40.0, "bytes_down": 4000.0 if dense else 80.0,
    "ratio_up": 1.0 if dense else 100.0, "ratio_down": 1.0 if dense else 50.0}))
"""


class MadeUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sluice = self.folder / "sluice"
        sluice.write_text(FAKE)
        sluice.chmod(0o755)

    def compare(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH / "convergence.py"), "job.yaml", "--bin", str(self.folder), "--set",
                               "steps=5", *arguments], capture_output=True, text=True, timeout=60)

    def test_a_row_for_each_seed_and_the_mean(self):
        path = self.folder / "json"
        done = self.compare("--seeds", "1,2", "--json", str(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual(rows[1], "| 1 | 1.0000 | 1.0100 | +0.0100 | 75.00% | 74.00% | -1.00 | 4,000 | 40, 100x fewer | 4,000 | "
                         "80, 50x fewer |")
        self.assertEqual(rows[3], "| mean | 1.0000 | 1.0150 | +0.0150 (SD 0.007) | 75.00% | 74.00% | -1.00 (SD 0.00) | 4,000 | "
                         "40, 100x fewer | 4,000 | 80, 50x fewer |")
        self.assertIn("5 steps, 2 workers, 2 shards, 1,000 parameters", done.stdout)
        self.assertEqual([pair["seed"] for pair in json.loads(path.read_text())["pairs"]], [1, 2])

    def test_what_is_asked_for(self):
        kept = self.compare("--seeds", "1,2", "--nats", "0.016", "--points", "1.01")
        self.assertEqual(kept.returncode, 0, kept.stderr)
        broken = self.compare("--seeds", "1,2", "--nats", "0.014", "--points", "0.9")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("0.0150 nats above", broken.stderr)
        self.assertIn("1.00 points below", broken.stderr)

    def test_a_run_that_fails_is_told(self):
        done = self.compare("--seeds", "1,13")
        self.assertEqual(done.returncode, 1)
        self.assertIn("| 1 | 1.0000 |", done.stdout)
        self.assertIn("worker 1 ended", done.stderr)

    def test_not_a_number_is_worse(self):
        run = {"test_loss": 1.0, "test_accuracy": 0.5}
        pairs = [{"dense": run, "compressed": {**run, "test_loss": float("nan")}}]
        self.assertEqual(len(convergence.verdict(argparse.Namespace(nats=1.0, points=1.0), pairs)), 1)


class Real(unittest.TestCase):
    def test_a_tiny_job(self):
        if BIN is None:
            self.skipTest("no program folder was given")
        done = subprocess.run([sys.executable, str(BENCH / "convergence.py"), str(ROOT / "tests/e2e/small.yaml"), "--bin", BIN,
                               "--seeds", "3,4", "--set", "steps=60", "--threads", "1", "--nats", "0.5"], capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual([row[0] for row in rows], ["| seed", "| 3", "| 4", "| mean"])
        self.assertIn("60 steps, 2 workers, 2 shards", done.stdout)
        for row in rows[1:]:
            self.assertNotEqual(row[1], row[2])  # Dense and compressed differ.


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN = sys.argv.pop(1)
    unittest.main()
