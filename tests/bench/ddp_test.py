# SPDX-License-Identifier: Apache-2.0
"""Tests bench/peers/ddp.py: its shapes, and a run over loopback if PyTorch is installed."""
import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from math import prod

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/peers/ddp.py"
sys.path.insert(0, str(SCRIPT.parent))
import ddp  # noqa: E402


class Shapes(unittest.TestCase):
    def test_resnet50_is_torchvisions(self):
        shapes = ddp.resnet50()
        self.assertEqual((len(shapes), sum(map(prod, shapes))), (161, 25_557_032))

    def test_tables_are_read_as_sluice_reads_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table"
            path.write_text("# An MLP.\nfc.weight 256 784\n\nfc.bias 256  # one each\nscale\n")
            self.assertEqual(ddp.read_table(path), [(256, 784), (256,), ()])
            path.write_text("fc.weight 256\nfc.bias 0\n")
            with self.assertRaisesRegex(SystemExit, 'line 2: after the name, "fc.bias"'):
                ddp.read_table(path)

    def test_a_row_is_that_of_the_slowest_rank(self):
        rows = [{"method": "dense", "seconds": seconds, "bytes": sent, "cpu": 0.1, "buckets": 5, "peak_rss_bytes": 1}
                for seconds, sent in (([0.1, 0.5, 0.2], 10), ([0.3, 0.1, 0.2], 20))]
        row = ddp.summary(rows)
        self.assertEqual(row["exchange_ms"], {"min": 200, "median": 300, "max": 500})
        self.assertEqual(row["bytes_sent"], 20)


class Run(unittest.TestCase):
    def setUp(self):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                self.python = ddp.python_with_torch(None)
        except SystemExit as why:
            self.skipTest(str(why))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.table = pathlib.Path(self.folder) / "table"

    def run_ddp(self, *arguments):
        command = [sys.executable, str(SCRIPT), "--table", str(self.table), "--repeats", "2", "--timeout", "60", *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)

    def test_methods_send_what_they_must(self):
        self.table.write_text("a 512 512\nb 512\n")
        path = pathlib.Path(self.folder) / "json"
        done = self.run_ddp("--json", str(path), "--method", "dense", "--method", "powersgd1")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(path.read_text())
        self.assertEqual((result["tensors"], result["elements"]), (2, 512 * 512 + 512))
        dense, powersgd = result["rows"]
        self.assertEqual((dense["method"], powersgd["method"]), ("dense", "powersgd1"))
        self.assertEqual(powersgd["buckets"], 1)
        # Loopback's counter includes both ranks and other programs.
        self.assertGreater(dense["bytes_sent"], 2 * 4 * (512 * 512 + 512))
        for row in (dense, powersgd):
            took = row["exchange_ms"]
            self.assertTrue(0 < took["min"] <= took["median"] <= took["max"], row)

    def test_a_rank_that_fails_is_named(self):
        self.table.write_text("a 999999999 999999\n")
        done = self.run_ddp("--method", "dense")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^rank [01] ended with status 1: RuntimeError: ")


if __name__ == "__main__":
    unittest.main()
