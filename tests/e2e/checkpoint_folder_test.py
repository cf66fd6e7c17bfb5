#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The contents of a checkpoint folder survive late processes, failed reads and other runs.

usage: checkpoint_folder_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import signal
import subprocess
import sys
import unittest

from faulty_job import FaultyJob

PROGRAMS = ""


class CheckpointFolderTest(unittest.TestCase):
    def job(self, *settings, every=50):
        job = FaultyJob(self, PROGRAMS, "steps=1000000", "server.lease_timeout=3s", "server.rejoin_timeout=60s", *settings)
        job.settings += [f"checkpoint.dir={job.checkpoints}", f"checkpoint.interval={every}"]
        return job

    def start_all(self, job):
        job.server(0), job.server(1), job.worker(0), job.worker(1)

    def expect_to_go_on(self, job):
        """Kills all remaining processes and starts them again."""
        job.kill_all()
        before = job.complete()
        self.start_all(job)
        job.wait_until_complete(before[-1] + 1)
        self.assertNotIn("cannot be used", job.log("shard-0"), job.logs())

    def test_a_replaced_worker_that_comes_to_its_name_late_damages_nothing(self):
        job = self.job("checkpoint.keep=1", every=300)
        job.rules("late", "link worker-0-term-0.state stop 1", "rename worker-0-term-0.state stop 1")
        job.server(0), job.server(1), job.worker(1)
        late = job.worker(0, name="worker-0-late", faults="late")
        job.wait_until_says("worker-0-late", "fault_shim: .* stop")
        job.worker(0)
        step = job.wait_until_complete()
        folder = job.checkpoints / f"step-{step:012d}"
        for name in ("shard-0", "shard-1", "worker-0", "worker-1"):  # This prevents later checkpoints.
            job.running[name].send_signal(signal.SIGSTOP)
        states = lambda: sorted((path.name, path.stat().st_ino) for path in folder.glob("worker-0-*.state"))
        before = states()
        late.send_signal(signal.SIGCONT)
        job.wait_until(lambda: states() != before, "the late worker's state has a name")
        verified = subprocess.run([f"{PROGRAMS}/sluice", "checkpoint", "verify", str(job.checkpoints)], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(verified.returncode, 0, verified.stdout + job.logs())
        self.expect_to_go_on(job)

    def test_a_record_that_cannot_be_read_back_is_not_lost(self):
        job = self.job()
        job.server(0, faults="shard-0"), job.server(1), job.worker(0), job.worker(1)
        job.wait_until_complete()
        job.rules("shard-0", "open-read /run.json fail EMFILE")
        job.kill("worker-1")
        job.worker(1)
        job.wait_until_says("shard-0", "run.json.*: Too many open files")
        record = json.loads((job.checkpoints / "run.json").read_text())
        self.assertEqual((record["term"], record["finished"]), (0, False))
        job.rules("shard-0")
        self.expect_to_go_on(job)

    def test_a_folder_of_parts_whose_run_is_unknown_is_refused(self):
        first = self.job("checkpoint.store=shards")
        self.start_all(first)
        first.wait_until_complete()
        first.kill_all()
        folder = first.checkpoints / "shard-1"
        record = folder / "run.json"
        record.write_text(record.read_text()[:-20])
        parts = sorted(folder.glob("step-*/*"))
        self.assertTrue(parts)
        job = self.job("checkpoint.store=shards")
        job.server(0), job.worker(0), job.worker(1)
        job.server(1, "--set", f"checkpoint.dir={first.checkpoints}")
        self.assertEqual(job.wait_until_ended("shard-1"), {"shard-1": 1}, job.logs())
        self.assertIn(f"{record} is damaged", job.log("shard-1"))
        self.assertEqual(sorted(folder.glob("step-*/*")), parts)


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main(verbosity=2)
