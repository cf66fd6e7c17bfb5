#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real processes: workers that train on a GPU send the same bytes as on the CPU and train the same parameters.

The GPU is simulated for LibTorch (tests/worker/train/fake_gpu.h) and runs Sluice's kernels block by block.

With --gpu the worker is sluice-worker and the GPU is real. Then forward and backward passes round as that GPU does, and the test to run
is Gpu.test_encoded_on_the_host.

usage: gpu_test.py FOLDER_OF_PROGRAMS [--gpu] [unittest arguments]
SLUICE_LONG=1  more codecs, whose kernels other tests also compare with the processor's bytes
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import wait_until

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "small.yaml")
BIN = pathlib.Path()
WORKER = "fake_gpu_worker"
LIMIT = 300  # In seconds, for one run.
LONG = 400  # Steps of a run that is stopped before its end.


UPLINKS = ["topk:5%+int4", "ternary:0.5", "powersgd:2", "none", "topk:5%/dgc:0.9"]
if os.environ.get("SLUICE_LONG"):
    UPLINKS += ["int8", "sign", "eden:2", "blocktopk:64"]


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Programs look for each other in their own folder.
        cls.folder = tempfile.TemporaryDirectory(dir=BIN.parent)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.programs = pathlib.Path(cls.folder.name)
        for program, source in (("sluice", "sluice"), ("sluice-server", "sluice-server"), ("sluice-worker", WORKER)):
            os.link(BIN / source, cls.programs / program)

    def command(self, folder, *changes, programs=None, steps=30, arguments=()):
        command = [str((programs or self.programs) / "sluice"), "run", JOB, "--quiet", "--http-listen", "off", "--threads", "1",
                   "--report", f"{folder}/report.json", "--log-dir", folder, *arguments]
        for change in [f"steps={steps}", *changes]:
            command += ["--set", change]
        return command

    def train(self, *changes, **options):
        """Returns the report of a run and the first worker's log."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(self.command(folder, *changes, **options), capture_output=True, text=True, timeout=LIMIT)
            if done.returncode != 0:
                logs = "".join(log.read_text() for log in sorted(pathlib.Path(folder).glob("*.log")))
                raise AssertionError(f"{changes}: {done.stdout}{done.stderr}{logs}")
            return json.loads((pathlib.Path(folder) / "report.json").read_text()), (pathlib.Path(folder) / "worker-0.log").read_text()

    def begin(self, checkpoints, *changes, **options):
        """Runs until there is a checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.Popen(self.command(folder, *changes, **options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_until(lambda: list(pathlib.Path(checkpoints).glob("**/manifest.json")), "a checkpoint", LIMIT)
                run.send_signal(signal.SIGTERM)
                self.assertNotEqual(run.wait(LIMIT), 0)
            finally:
                run.kill()
                run.wait()

    def expect_same(self, *changes, devices="cuda:0"):
        wanted, log = self.train("device=cpu", *changes, programs=BIN)
        self.assertIn("device: cpu", log)
        got, log = self.train("device=cuda", *changes)
        self.assertIn(f"device: {devices} (", log)
        self.assertNotIn("encoded on the processor", log)
        for key in ("parameters_sha256", "test_loss", "train_loss"):
            self.assertEqual(got[key], wanted[key], f"{changes}: {key}")
        for key in ("bytes_up", "bytes_down"):  # Messages contain measured times, so their sizes vary.
            self.assertAlmostEqual(got[key], wanted[key], delta=0.005 * wanted[key], msg=f"{changes}: {key}")

    def test_what_goes_up_and_what_is_trained(self):
        for uplink in UPLINKS:
            with self.subTest(uplink):
                self.expect_same(f"compression.uplink={uplink}")

    def test_models_with_buffers_and_short_floats(self):
        image = "data={format: synthetic, limit: 64, test_limit: 32}"
        self.expect_same("model={name: simple_cnn}", image, "precision=bf16")
        self.expect_same("precision=fp16", "gradient_accumulation_steps=2")

    def test_two_gpus_of_a_worker(self):
        self.expect_same("gpus_per_worker=2", "gradient_accumulation_steps=2", devices="cuda:0, cuda:1")

    def test_shards_that_update_and_other_modes(self):
        self.expect_same("optimizer.location=shards", "compression.downlink=topk:5%")
        self.expect_same("mode=local_sgd", "local_steps=5")

    def test_encoded_on_the_host(self):
        for uplink in ("topk:5%+int4", "powersgd:2", "int8", "none"):
            with self.subTest(uplink):
                job = ("device=cuda", f"compression.uplink={uplink}")
                there, log = self.train(*job)
                self.assertNotIn("encoded on the processor", log)
                here, _ = self.train(*job, "encode_location=host")
                self.assertEqual(here["parameters_sha256"], there["parameters_sha256"])

    def test_auto_takes_it(self):
        _, log = self.train("device=auto")
        self.assertIn("device: cuda:0", log)

    def test_a_checkpoint_of_either_device(self):
        straight, _ = self.train("device=cpu", programs=BIN, steps=LONG)
        programs = {"cpu": BIN, "cuda": self.programs}
        for first, second in (("cpu", "cuda"), ("cuda", "cpu")):
            with self.subTest(f"{first}, then {second}"), tempfile.TemporaryDirectory() as folder:
                saved = f"checkpoint={{dir: {folder}, interval: 10}}"
                self.begin(folder, f"device={first}", saved, programs=programs[first], steps=LONG)
                report, log = self.train(f"device={second}", saved, programs=programs[second], steps=LONG,
                                         arguments=["--resume"])
                self.assertIn(f"device: {second}", log)
                self.assertIn("continuing from the checkpoint", log)
                self.assertEqual(report["parameters_sha256"], straight["parameters_sha256"])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:2] == ["--gpu"]:
        sys.argv.pop(1)
        WORKER = "sluice-worker"
    unittest.main()
