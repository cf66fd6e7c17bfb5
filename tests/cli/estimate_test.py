#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sluice estimate` as a program: flags, exit codes, and --calibrate with real exchanges.

usage: estimate_test.py BIN              BIN is the folder with the programs
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
COMPARISON = ("--model", "resnet50", "--workers", "8", "--compute-ms", "50")


def estimate(*arguments):
    return subprocess.run([BIN / "sluice", "estimate", *map(str, arguments)], capture_output=True, text=True, timeout=300)


class Estimate(unittest.TestCase):
    def test_recommends_what_beats_the_published_comparison(self):
        done = estimate(*COMPARISON, "--shards", "4", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        recommended = report["estimates"][report["recommended"]]
        self.assertLessEqual(recommended["step_ms"], 60)
        self.assertGreaterEqual(recommended["efficiency"], 0.694)

    def test_wrong_flags_end_with_2_and_a_reason(self):
        for flag, value, reason in (("--workers", "0", "number of workers is 0"), ("--link-rate", "-5", "--link-rate"),
                                    ("--latency", "far", "--latency")):
            flags = {"--model": "resnet50", "--workers": "2", flag: value}
            done = estimate(*(word for pair in flags.items() for word in pair))
            self.assertEqual(done.returncode, 2, flag)
            self.assertIn(reason, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_calibration_makes_other_codecs_known(self):
        self.assertIn("--calibrate", estimate(*COMPARISON, "--spec", "qsgd:4").stderr)
        with tempfile.TemporaryDirectory() as folder:
            table, figures = pathlib.Path(folder) / "table", pathlib.Path(folder) / "figures.json"
            table.write_text("weight 500 1000\n")
            done = estimate("--calibrate", figures, "--table", table, "--spec", "qsgd:4")
            self.assertEqual(done.returncode, 0, done.stderr)
            measured = json.loads(figures.read_text())
            self.assertIn("qsgd:4", measured["codecs"])
            self.assertGreater(measured["step_ms"], 0)
            self.assertGreater(measured["codecs"]["none"]["add_ns"], 0)
            done = estimate(*COMPARISON, "--spec", "qsgd:4", "--figures", figures)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("qsgd:4", done.stdout)


if __name__ == "__main__":
    unittest.main()
