#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real processes in every mode: the optimizer's location changes only rounding, and all modes learn.

usage: modes_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "cells.yaml")
BIN = pathlib.Path()
LIMIT = 120  # In seconds, for one run.
STEPS = 100
GUESSING = 2.30  # ln 10.


def train(*changes):
    """Returns the report of a run."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [str(BIN / "sluice"), "run", JOB, "--quiet", "--http-listen", "off", "--threads", "1", "--report", str(report),
                   "--log-dir", folder]
        for change in [f"steps={STEPS}", *changes]:
            command += ["--set", change]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise AssertionError(f"{changes}: {done.stdout}{done.stderr}")
        return json.loads(report.read_text())


class Modes(unittest.TestCase):
    def test_optimizer_on_shards(self):
        for optimizer in ("{name: sgd, lr: 0.05}", "{name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}",
                          "{name: adam, lr: 0.001}"):
            with self.subTest(optimizer):
                changes = [f"optimizer={optimizer}", "lr_schedule={name: cosine}"]
                here = train(*changes)
                there, again = (train(*changes, "optimizer.location=shards") for _ in range(2))
                self.assertEqual(there["parameters_sha256"], again["parameters_sha256"])
                for loss in ("train_loss", "test_loss"):
                    self.assertAlmostEqual(there[loss], here[loss], delta=1e-3)
                self.assertLess(there["test_loss"], 0.5 * GUESSING)

    def test_local_steps(self):
        for outer in ("average", "nesterov"):
            with self.subTest(outer):
                changes = ["mode=local_sgd", "local_steps=15", f"outer_optimizer={outer}"]
                first, again = train(*changes), train(*changes)
                self.assertEqual(first["parameters_sha256"], again["parameters_sha256"])
                self.assertEqual((first["mode"], first["steps"], first["rounds"]), ("local_sgd", STEPS, 7))
                self.assertGreater(first["ratio_up"], 14)
                self.assertIsNone(first["staleness"])
                self.assertLess(first["test_loss"], 0.5 * GUESSING)

    def test_without_waiting(self):
        for mode in (["mode=async"], ["mode=ssp", "staleness=1"]):
            for on in ("shards", "workers"):
                with self.subTest(f"{mode} {on}"):
                    report = train(*mode, f"optimizer.location={on}", "compression.uplink=topk:5%+int4",
                                   "compression.downlink=int8")
                    self.assertEqual((report["steps"], report["rounds"]), (STEPS, STEPS))
                    self.assertGreaterEqual(report["staleness"], 0)
                    self.assertLess(report["test_loss"], 0.5 * GUESSING)

    def test_plans_without_waiting(self):
        """A schedule of dense steps and then falling densities sends fewer bytes than dense steps and more than the last density alone."""
        coarse = ["compression.uplink=topk:2%+int4", "compression.downlink=topk:2%+int4"]
        for mode in (["mode=async"], ["mode=ssp", "staleness=1"]):
            with self.subTest(f"{mode}"):
                fixed = train(*mode, *coarse)
                planned = train(*mode, *coarse, "control={policy: schedule, schedule: exponential, start: 0.25, end: 0.02, "
                                "steps: 30, stages: 3, dense_steps: 10}")
                self.assertLess(planned["test_loss"], 0.5 * GUESSING)
                for way in ("ratio_up", "ratio_down"):
                    self.assertGreater(planned[way], 4)
                    self.assertLess(planned[way], 0.5 * fixed[way])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
