#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains shortened examples of a transformer and a residual network with real processes, 2 shards and 2 workers, and `topk:1%+int4` up. The
models must learn, and a seed must give the same parameters bit for bit, with and without accumulation.

usage: training_test.py FOLDER_OF_PROGRAMS FOLDER_OF_EXAMPLES [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path()
EXAMPLES = pathlib.Path()
LIMIT = 400  # In seconds, for one run.
TWO_PASSES = ["gradient_accumulation_steps=2", "batch_size_per_worker=4"]  # Passes of half the samples each.


class Training(unittest.TestCase):
    def train(self, job, changes):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            command = [str(BIN / "sluice"), "run", str(EXAMPLES / job), "--quiet", "--http-listen", "off", "--threads", "1", "--report",
                       str(report), "--log-dir", folder]
            for change in ["server.lease_timeout=3600s", *changes]:  # A busy machine must not lose a process.
                command += ["--set", change]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(report.read_text())

    def learns_and_repeats(self, job, changes, loss_at_start, loss_at_most):
        """`loss_at_start` is the loss of an untrained model. Losses are means of the last epoch."""
        self.assertLess(loss_at_most, 0.8 * loss_at_start)
        changes = ["compression.uplink=topk:1%+int4", *changes]
        hashes = []
        for more in ([], TWO_PASSES):
            first, again = self.train(job, changes + more), self.train(job, changes + more)
            self.assertEqual((first["workers"], first["shards"]), (2, 2))
            self.assertGreater(first["ratio_up"], 50)
            self.assertLess(first["train_loss"], loss_at_most, more)
            self.assertEqual(first["parameters_sha256"], again["parameters_sha256"], more)
            self.assertEqual(first["train_loss"], again["train_loss"], more)
            hashes.append(first["parameters_sha256"])
        self.assertNotEqual(*hashes)

    def test_char_gpt(self):
        # The text has 47 different characters, so an untrained model has the loss ln 47 = 3.85.
        self.learns_and_repeats("char-gpt.yaml", [
            "data={format: synthetic_text, context: 32, limit: 256, test_limit: 64}", "model={name: char_gpt, layers: 1, width: 64}",
            "batch_size_per_worker=8", "steps=80", "lr_schedule.warmup_steps=10", "optimizer.lr=0.01"], 3.85, 2.9)

    def test_resnet20(self):
        # With 10 classes, an untrained model has the loss ln 10 = 2.30.
        self.learns_and_repeats("cifar10-resnet20.yaml", [
            "data={format: synthetic_cifar, limit: 64, test_limit: 64}", "batch_size_per_worker=8", "steps=64",
            "optimizer.lr=0.2", "optimizer.clip_norm=1", "lr_schedule.warmup_steps=8", "buffer_sync_interval=10"], 2.30, 1.8)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    EXAMPLES = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
