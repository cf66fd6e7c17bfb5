#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run continues from its checkpoint with another number of shards and ends with the bits of an undisturbed one. SIGKILL between the start of
the new shards and their first checkpoint leaves the checkpoint as it was, for either number of shards.

usage: other_shards_test.py FOLDER_OF_PROGRAMS
"""
import pathlib
import shutil
import sys
import unittest

from faulty_job import FaultyJob

PROGRAMS = pathlib.Path()
NEVER = 1000000  # An interval that the job does not reach.


class OtherShardsTest(unittest.TestCase):
    def setUp(self):
        self.job = FaultyJob(self, PROGRAMS, "steps=800", "server.lease_timeout=60s", shards=3)

    def start(self, store, shards, interval):
        """Starts the job's processes with empty logs."""
        for log in self.job.folder.glob("*.log"):
            log.unlink()
        self.job.settings = ["steps=800", "server.lease_timeout=60s", f"checkpoint.dir={self.job.checkpoints}", f"checkpoint.store={store}",
                             f"checkpoint.interval={interval}", f"shards={shards}"]
        for shard in range(shards):
            self.job.server(shard)
        for rank in range(2):
            self.job.worker(rank, "--threads", 1)

    def stop(self):
        """Kills all processes with SIGKILL."""
        self.job.kill_all()
        self.job.running.clear()

    def expect_bits_of_an_undisturbed_run(self, store):
        job = self.job
        self.start(store, 2, NEVER)
        expected = job.wait_until_done(self, ranks=2)
        job.running.clear()
        shutil.rmtree(job.checkpoints)
        self.start(store, 2, 50)
        job.wait_until_complete()
        self.stop()
        saved = job.complete()

        self.start(store, 3, NEVER)
        for shard in range(3):
            job.wait_until_says(f"shard-{shard}", f"elements in .*, from the checkpoint after step {saved[-1]}, ")
        job.wait_until_says("shard-0", f"the run had 2 shards and continues with 3 after step {saved[-1]}")
        for shard in (2, 0):  # The coordinator goes back; the other shard is repaired from the same checkpoint.
            job.kill(f"shard-{shard}")
            job.server(shard)
            job.wait_until_says(f"shard-{shard}", f"elements in .*, from the checkpoint after step {saved[-1]}, ", times=2)
        self.stop()
        self.assertEqual(job.complete(), saved)

        self.start(store, 2, 50)  # Goes back to the former number.
        job.wait_until_complete(saved[-1] + 1)
        self.stop()
        self.start(store, 3, 50)
        job.wait_until_says("shard-0", "the run had 2 shards and continues with 3")
        job.wait_until_complete(job.complete()[-1] + 1)
        self.stop()
        self.start(store, 1, 50)  # All folders are in one place here, so that nothing has to be copied.
        self.assertEqual(job.wait_until_done(self, ranks=2), expected)
        self.assertIn("the run had 3 shards and continues with 1", job.log("shard-0"))

    def test_parts_in_one_folder(self):
        self.expect_bits_of_an_undisturbed_run("path")

    def test_parts_with_the_servers(self):
        self.expect_bits_of_an_undisturbed_run("shards")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
