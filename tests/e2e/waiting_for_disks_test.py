#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real processes whose disks are temporarily full, slow or gone. The job must wait, report what it waits for, and continue with the
same bits.

usage: waiting_for_disks_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

from faulty_job import FaultyJob
from processes import SlowedDown

PROGRAMS = pathlib.Path()
STEPS = 700
SLOW = 40  # Slowdown factor until the awaited event.
RECORD_FAILS = r"\(run\.json\) cannot be written: .*No space left on device"
FULL = "write run.json fail ENOSPC"


class WaitingForDisksTest(unittest.TestCase):
    expected = None  # The final parameters of every run with fixed workers.

    def job(self, *settings, every=25, keep=2, replay_limit=None, shards=1):
        job = FaultyJob(self, PROGRAMS, f"steps={STEPS}", f"shards={shards}", "server.lease_timeout=4s", *settings, shards=shards)
        limit = "" if replay_limit is None else f", replay_limit: {replay_limit}"
        job.settings.append(f"checkpoint={{dir: {job.checkpoints}, interval: {every}, keep: {keep}{limit}}}")
        return job

    def warnings(self, job):
        done = subprocess.run([PROGRAMS / "sluice", "status", "--coordinator", f"127.0.0.1:{job.ports[0]}", "--json"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            return []
        return [warning["text"] for warning in json.loads(done.stdout).get("warnings", [])]

    def wait_until_warned(self, job, text):
        job.wait_until(lambda: any(re.search(text, warning) for warning in self.warnings(job)), f"the status says {text!r}")

    def undisturbed(self):
        if WaitingForDisksTest.expected is None:
            job = self.job()
            job.server(0), job.worker(0), job.worker(1)
            job.wait_until_ended()
            WaitingForDisksTest.expected = job.report("worker-0")["parameters_sha256"]
        return self.expected

    def expect_finished(self, job, *names):
        codes = job.wait_until_ended(*names)
        self.assertEqual(set(codes.values()), {0}, f"{codes}\n{job.logs()}")
        return [job.report(name)["parameters_sha256"] for name in names if name.startswith("worker")]

    def full_disk(self, replay_limit):
        """A worker is lost while the coordinator's disk is full. The other worker must learn of the loss only once there is space."""
        expected = self.undisturbed()
        job = self.job(replay_limit=replay_limit)
        job.server(0, faults="disk"), job.worker(0), job.worker(1)
        job.wait_until_complete()
        job.rules("disk", FULL)
        job.kill("worker-1")
        job.worker(1)
        job.wait_until_says("shard-0", RECORD_FAILS)
        self.wait_until_warned(job, r"the coordinator has been waiting for the record of term .*No space left on device")
        self.assertNotIn("worker 1 joined", job.log("worker-1"))
        job.rules("disk")
        self.assertEqual(self.expect_finished(job, "shard-0", "worker-0", "worker-1"), [expected] * 2)
        return job

    def test_a_rollback_waits_for_space(self):
        job = self.full_disk(replay_limit=0)
        self.assertIn("the job goes back", job.log("shard-0"))

    def test_a_repair_waits_for_space(self):
        job = self.full_disk(replay_limit=None)
        self.assertNotIn("the job goes back", job.log("shard-0"))

    def test_an_elastic_job_waits_for_space(self):
        job = self.job("membership=elastic", "min_workers=1")
        job.server(0, faults="disk"), job.worker(0), job.worker(1)
        job.wait_until_complete()
        job.rules("disk", FULL)
        job.kill("worker-1")
        job.wait_until_says("shard-0", RECORD_FAILS)
        job.rules("disk")
        job.wait_until_says("shard-0", "the job continues with 1 workers")
        self.expect_finished(job, "shard-0", "worker-0")

    def test_a_newcomer_reads_slowly_what_the_job_has_passed(self):
        job = self.job("membership=elastic", "max_workers=3", keep=1)
        # Every checkpoint takes a while, so that the newcomer joins during the write of one.
        job.rules("slow", "fsync worker-1-term delay 2")
        job.server(0), job.worker(0), job.worker(1, faults="slow")
        # The job must not end before the newcomer has joined.
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            first = job.wait_until_complete()
            job.wait_until(lambda: list(job.checkpoints.glob("step-*/shard-0-*.state"))[1:], "another checkpoint is under way")
            job.rules("newcomer", "open-read manifest.json delay 4 1")
            job.worker(2, faults="newcomer")
            job.wait_until_says("worker-2", "manifest.json")
            job.wait_until_complete(first + 1)
            job.wait_until_says("worker-2", "the job is at a later step")
        job.rules("slow")
        self.assertEqual(len(set(self.expect_finished(job, "shard-0", "worker-0", "worker-1", "worker-2"))), 1)

    def test_a_folder_that_is_away_is_awaited(self):
        expected = self.undisturbed()
        job = self.job()
        job.server(0), job.worker(0), job.worker(1)
        job.wait_until_complete()
        job.kill("worker-1")
        job.rules("away", "open-read manifest.json fail ENOENT")
        job.worker(1, faults="away")
        self.wait_until_warned(job, r"waiting for its part of the checkpoint .* to be read .*No such file or directory")
        job.rules("away", "open-read worker-1-term fail ESTALE 2")
        self.assertEqual(self.expect_finished(job, "shard-0", "worker-0", "worker-1"), [expected] * 2)

    def test_a_disk_that_hangs_is_named(self):
        expected = self.undisturbed()
        job = self.job()
        job.rules("slow", "fsync worker-1-term delay 8 1")
        job.server(0), job.worker(0), job.worker(1, faults="slow")
        self.wait_until_warned(job, r"rank 1 .*has been waiting for worker-1-term-0\.state of the checkpoint after step \d+ to be "
                                    "written for")
        self.assertEqual(self.expect_finished(job, "shard-0", "worker-0", "worker-1"), [expected] * 2)

    def test_a_record_that_hangs_at_the_start_is_named(self):
        expected = self.undisturbed()
        job = self.job()
        job.rules("hangs", "fsync run.json delay 10 1")
        job.server(0, faults="hangs"), job.worker(0), job.worker(1)
        self.wait_until_warned(job, r"the coordinator has been waiting for the record of term 0 \(run\.json\) for")
        self.assertEqual(self.expect_finished(job, "shard-0", "worker-0", "worker-1"), [expected] * 2)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
