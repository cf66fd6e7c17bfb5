#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a job knows which of two processes is newer: a shard is restarted while its predecessor lives, and clocks jump by hours in
both directions while processes start and end.

usage: instances_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import re
import sys
import unittest

from faulty_job import FaultyJob, Link
from processes import SlowedDown, free_port

PROGRAMS = ""
HOUR = 3600
STEPS = 1500


class InstancesTest(unittest.TestCase):
    def job(self, *settings):
        job = FaultyJob(self, PROGRAMS, *settings)
        job.settings += [f"checkpoint.dir={job.checkpoints}", "checkpoint.interval=25"]
        return job

    def expect_progress(self, job, checkpoints=2):
        """Waits for new checkpoints, which need every rank and every shard."""
        job.wait_until_complete(job.complete()[-1] + 25 * checkpoints)

    def expect_no_rollback(self, job, coordinator="shard-0"):
        self.assertNotIn("steps are lost", job.log(coordinator), job.logs())

    def test_a_shard_that_is_started_beside_itself_takes_over(self):
        job = self.job("steps=1000000", "server.rejoin_timeout=30s")
        job.server(0), job.server(1), job.worker(0), job.worker(1)
        job.wait_until_complete()
        job.server(1, name="shard-1-later", listen=free_port())
        self.assertEqual(job.wait_until_ended("shard-1"), {"shard-1": 1}, job.logs())
        self.assertIn("which was started later", job.log("shard-1"))
        self.expect_progress(job)
        self.assertEqual([name for name, process in job.running.items() if process.poll() is not None], ["shard-1"],
                         job.logs())
        self.expect_no_rollback(job)

    def test_workers_leave_a_shard_that_only_they_can_reach(self):
        job = self.job("steps=1000000", "server.lease_timeout=2s", "server.rejoin_timeout=30s")
        link = Link(job.ports[0])
        self.addCleanup(link.close)
        job.server(0), job.server(1, coordinator=link.port), job.worker(0), job.worker(1)
        job.wait_until_complete()
        link.hold("there"), link.hold("back")
        job.wait_until_says("shard-0", "shard 1 .* did not report")
        job.server(1, name="shard-1-later", listen=free_port())
        for rank in (0, 1):
            job.wait_until_says(f"worker-{rank}", "shard 1 is served by another process now")
        self.expect_progress(job)
        self.assertIsNone(job.running["shard-1"].poll(), "the old process runs and does not know of its replacement")
        self.expect_no_rollback(job)
        link.release("there"), link.release("back")
        self.assertEqual(job.wait_until_ended("shard-1"), {"shard-1": 1}, job.logs())
        self.expect_progress(job)

    def test_clocks_that_are_stepped_by_hours_change_nothing(self):
        undisturbed = self.job(f"steps={STEPS}")
        self.run_to_its_end(undisturbed)
        job = self.job(f"steps={STEPS}")
        for name, hours in (("shard-0", 0), ("shard-1", 7), ("worker-0", -2), ("worker-1", 3)):
            job.clock(name, hours * HOUR)
        job.server(0, faults="shard-0"), job.server(1, faults="shard-1")
        slow = SlowedDown(job.worker(0, faults="worker-0").pid, 6)
        self.addCleanup(slow.end)
        job.worker(1, faults="worker-1")
        job.wait_until_complete()
        for name, hours in (("shard-0", 5), ("shard-1", -4), ("worker-0", 9), ("worker-1", -8)):
            job.clock(name, hours * HOUR)
        self.expect_progress(job)
        self.restart(job, "shard-1", -10, lambda: job.server(1, faults="shard-1"), "shard 1 .* replays from step")
        self.restart(job, "shard-0", -20, lambda: job.server(0, faults="shard-0"), "shard 0 .* replays from step")
        self.restart(job, "worker-1", -30, lambda: job.worker(1, faults="worker-1"), "rank 1 .* was replaced by")
        self.restart(job, "shard-1", 40, lambda: job.server(1, faults="shard-1"), "shard 1 .* replays from step")
        for name, hours in (("shard-0", 1), ("shard-1", -50), ("worker-0", -60), ("worker-1", 70)):
            job.clock(name, hours * HOUR)
        slow.end()
        self.assertEqual(set(job.wait_until_ended().values()), {0}, job.logs())
        self.expect_no_rollback(job)
        for rank in (0, 1):
            self.assertEqual(job.report(f"worker-{rank}")["parameters_sha256"],
                             undisturbed.report("worker-0")["parameters_sha256"])

    def run_to_its_end(self, job):
        job.server(0), job.server(1), job.worker(0), job.worker(1)
        self.assertEqual(set(job.wait_until_ended().values()), {0}, job.logs())

    def restart(self, job, name, hours, start, said):
        """Restarts a process with a clock that is wrong by `hours`."""
        before = job.log("shard-0")
        job.kill(name)
        job.clock(name, hours * HOUR)
        start()
        job.wait_until(lambda: any_line(said, job.log("shard-0")[len(before):]), f"shard-0 says {said!r}")
        self.expect_progress(job, checkpoints=1)


def any_line(expression, text):
    return re.search(expression, text)


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main(verbosity=2)
