#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real jobs in which the coordinator learns something too late: that a shard has begun, that one of the last workers leaves before
another comes, that a rack's checkpoint is complete.

usage: lost_words_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import pathlib
import signal
import sys
import unittest

from faulty_job import FaultyJob, Link
from processes import free_port

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path()


class LostWords(unittest.TestCase):
    def job(self, *settings, **more):
        job = FaultyJob(self, BIN, *settings, **more)
        job.settings.append(f"checkpoint={{dir: {job.checkpoints}, interval: 50}}")
        return job

    def test_the_word_that_a_shard_has_begun(self):
        job = self.job("steps=200")
        job.server(0)
        link = Link(job.ports[0])
        self.addCleanup(link.close)
        job.server(1, coordinator=link.port)
        job.wait_until_says("shard-0", r"shard 1 \(.*\) has joined")
        link.hold("there")
        job.worker(0)
        job.worker(1)
        job.wait_until_says("shard-1", r"elements in \d+")
        link.cut()
        link.release("there")
        self.assertEqual(set(job.wait_until_ended().values()), {0}, job.logs())
        self.assertNotIn("goes back", job.log("shard-0"))

    def test_a_worker_that_is_stopped_at_min_workers(self):
        job = self.job("steps=600", "membership=elastic", "min_workers=2", shards=1)
        job.settings.append("shards=1")
        job.server(0)
        job.worker(0)
        job.worker(1)
        job.wait_until_complete()
        job.running["worker-1"].send_signal(signal.SIGTERM)
        job.wait_until_ended("worker-1")
        job.wait_until_says("shard-0", r"rank 1 \(.*\) left: .*the others wait up to")
        job.worker(1, name="worker-1-again")
        job.wait_until_says("shard-0", r"rank 1 \(.*\) joins with the checkpoint")
        job.running.pop("worker-1")
        self.assertEqual(set(job.wait_until_ended().values()), {0}, job.logs())
        self.assertEqual(job.report("worker-1-again")["parameters_sha256"], job.report("worker-0")["parameters_sha256"])
        self.assertNotIn("goes back", job.log("shard-0"))

    def test_a_rack_whose_manifest_takes_long(self):
        job = self.job("shards=1", "steps=600", shards=1, job=HERE / "relay.yaml")
        job.rules("slow", "rename rack-0/step-000000000050/manifest.json delay 3 1")
        ports = [free_port() for _ in range(2)]

        def start_relay(number, name, faults=None):
            job.start(name, "sluice-relay", "--relay", number, "--coordinator", f"127.0.0.1:{job.ports[0]}", "--listen",
                      f"127.0.0.1:{ports[number]}", faults=faults)

        job.server(0)
        start_relay(0, "relay-0", faults="slow")
        start_relay(1, "relay-1")
        for rank in range(4):
            job.worker(rank, coordinator=ports[rank // 2])
        job.wait_until_says("relay-0", "rack-0/step-000000000050/manifest.json")
        job.running["worker-0"].send_signal(signal.SIGSTOP)  # The job must not end first.
        self.assertEqual(job.complete(), [], "the rack has not written this checkpoint yet")
        newest = job.wait_until_complete(50)
        self.assertGreaterEqual(job.complete(job.checkpoints / "rack-0")[-1], newest, job.logs())
        job.kill("relay-0")
        start_relay(0, "relay-0-again")
        job.running["worker-0"].send_signal(signal.SIGCONT)
        codes = job.wait_until_ended()
        self.assertEqual({name: code for name, code in codes.items() if code != 0}, {}, job.logs())
        self.assertNotIn("the job goes back", job.log("shard-0"))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
