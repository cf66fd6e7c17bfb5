#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An administrator changes the settings of a running job and evicts a worker with `sluice set` and `sluice evict`. Another process takes the
rank, and the job ends with the bits of an undisturbed one.

usage: administer_test.py FOLDER_OF_PROGRAMS
"""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hostile"))

from faulty_job import FaultyJob  # noqa: E402
from processes import SlowedDown  # noqa: E402
from protected_job import Secrets  # noqa: E402

PROGRAMS = pathlib.Path()
SLOW = 10  # Slowdown factor: the job must not end before the commands.
SETTINGS = ("steps=600", "server.lease_timeout=60s", "checkpoint.interval=25")


class AdministerTest(unittest.TestCase):
    def start(self, *settings):
        job = FaultyJob(self, PROGRAMS, *SETTINGS, *settings)
        job.settings.append(f"checkpoint.dir={job.checkpoints}")
        secrets = Secrets(job.folder)
        for shard in range(2):
            job.server(shard, *secrets.of_server())
        for rank in range(2):
            job.worker(rank, "--threads", 1, *secrets.of("worker"))
        return job, secrets

    def sluice(self, job, secrets, *words, role="administrator", code=0):
        asked = subprocess.run([PROGRAMS / "sluice", *map(str, words), "--coordinator", f"127.0.0.1:{job.ports[0]}", *secrets.of(role)],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(asked.returncode, code, f"sluice {words}: {asked.stdout}{asked.stderr}")
        return asked.stdout + asked.stderr

    def test_an_evicted_rank_goes_to_another_process(self):
        job, _ = self.start()
        expected = job.wait_until_done(self, ranks=2)
        job, secrets = self.start()
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            job.wait_until_complete()
            self.assertIn("lease timeout: 1m\nlog level: that of each process", self.sluice(job, secrets, "set"))
            self.assertIn("lease timeout: 2m\nlog level: debug\n",
                          self.sluice(job, secrets, "set", "--lease-timeout", "2m", "--log-level", "debug"))
            self.assertIn("out of range", self.sluice(job, secrets, "set", "--lease-timeout", "1ms", code=1))
            self.assertIn("administrator", self.sluice(job, secrets, "evict", 1, role="worker", code=1))
            self.assertIn("rank 2 does not exist", self.sluice(job, secrets, "evict", 2, code=1))
            evicted = job.running.pop("worker-1")
            said = self.sluice(job, secrets, "evict", 1, "--reason", "a bad disk")
            self.assertRegex(said, r"^rank 1 \(.*\) is evicted; the job waits up to ")
            job.wait_until(lambda: evicted.poll() is not None, "the evicted worker ends")
            self.assertNotEqual(evicted.returncode, 0)
            job.wait_until_says("shard-0", r"DEBUG shard-0: refused a heartbeat of .*, rank 1: this worker has left rank 1")
            self.assertIn("no worker holds rank 1", self.sluice(job, secrets, "evict", 1, code=1))
            job.worker(1, "--threads", 1, *secrets.of("worker"))
            job.wait_until_says("shard-0", "rank 1 .* replays")
        self.assertEqual(job.wait_until_done(self, ranks=2), expected)
        log = job.log("shard-0")
        self.assertRegex(log, r"audit: [\d.:]+ changed settings: lease_timeout 2m, log level debug\n")
        self.assertRegex(log, r"audit: [\d.:]+ evicted rank 1\n")
        self.assertRegex(log, r"audit: [\d.:]+ evicted rank 2, which was refused: rank 2 does not exist")
        self.assertIn("an administrator evicted it: a bad disk", log)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
