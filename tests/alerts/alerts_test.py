#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every alert fires when its fault happens to a real job, and what its runbook (docs/operations.md) says ends it.

Each test starts a job and a Prometheus with the shipped rules, whose durations are divided by alert_watch.FASTER. It causes a fault, waits until the
alert fires, compares what the status page shows with the fault, follows the runbook, and waits until the alert is over. The timeouts of the
processes are not divided.

usage: alerts_test.py FOLDER_OF_PROGRAMS [ALERT...]     all alerts if none is named; exits with 77 (skipped) if prometheus is missing
"""
import os
import pathlib
import re
import shutil
import sys
import time
import unittest

from alert_job import COMPUTE_MS, LIMIT, AlertJob, CorruptingProxy, PacedProxy  # First: it adds the folder of the next ones.
from alert_watch import ROOT, AlertWatch
from processes import SlowedDown, wait_until

PROGRAMS = pathlib.Path()
SLOW = 20e6 / 8  # Bytes per second of a slow link. A step then takes many times as long as its computation.
SLOWDOWN = 50  # Slowdown factor for workers that compute.
FOREVER = 10**9  # Steps.
FULL = "fail ENOSPC"


def names_of_alerts():
    return re.findall(r"- alert: (\w+)", (ROOT / "helm/sluice/rules/sluice.yaml").read_text())


class AlertsTest(unittest.TestCase):
    def job(self, *settings, **options):
        self.alert = self._testMethodName.removeprefix("test_")
        return AlertJob(self, PROGRAMS, self.alert, *settings, **options)

    def watch(self, job):
        """Watches a job that runs well."""
        self.prometheus = AlertWatch(self, job, LIMIT)
        job.wait_until_steps()
        self.prometheus.wait_until_scraped()
        self.assertEqual(self.prometheus.firing(), {}, "an alert fires before the fault")
        self.begun = time.monotonic()

    def other_critical(self):
        return {name for name in self.prometheus.firing() if name in self.prometheus.critical} - {self.alert}

    def say(self, what, text):
        print(f"{self.alert}: {what}: {text}", flush=True)

    def expect_fires(self, job, page):
        """`page` is a regular expression for a warning of the status page, or None if the page says nothing of this fault."""
        summary = self.prometheus.wait_until_fires(self.alert)
        self.say("fires", f"after {time.monotonic() - self.begun:.1f} s: {summary}")
        self.assertEqual(self.other_critical(), set(), "another critical alert fires")
        if page:
            self.say("page", job.wait_until(lambda: job.warned(page), f"a warning {page!r}; there are {job.warnings()}"))
        else:
            self.say("page", job.warnings())
        self.say("why", job.sluice("why"))

    def expect_resolves(self):
        begun = time.monotonic()
        self.prometheus.wait_until_resolved(self.alert)
        self.say("resolved", f"{time.monotonic() - begun:.1f} s after the remedy; firing: {sorted(self.prometheus.firing())}")
        # A job that the remedy stopped counts as failed until it runs again.
        wait_until(lambda: not self.other_critical(), "no critical alert is left", LIMIT)

    def test_SluiceJobFailed(self):
        job = self.job("server.rejoin_timeout=2s").saves().start_all()
        self.watch(job)
        job.wait_until_complete()
        job.kill("worker-1")
        summary = self.prometheus.wait_until_fires(self.alert)
        self.say("fires", f"after {time.monotonic() - self.begun:.1f} s: {summary}")
        self.say("exit codes", job.end_all())
        self.say("log", job.log("shard-0").splitlines()[-1])
        self.assertRegex(job.log("shard-0").splitlines()[-1], "rank 1 .* did not come back")
        self.say("why", job.sluice("why"))
        step = job.complete()[-1]
        job.start_all()
        job.wait_until(lambda: job.step() > step, f"the job continues after step {step}")
        self.expect_resolves()

    def test_SluiceNoProgress(self):
        """A worker lives and sends heartbeats, but its program waits for something."""
        job = self.job("server.stall_timeout=60s").saves()
        turns, give = os.pipe()
        self.addCleanup(os.close, turns)
        self.addCleanup(os.close, give)
        job.server(0), job.worker(0), job.worker(1, "--turns", before=lambda: os.dup2(turns, 0))
        os.write(give, b"100\n")
        self.watch(job)
        self.expect_fires(job, "no worker has finished a step")
        job.wait_until_says("shard-0", "step 101, bundle 0 has waited .* for rank 1")
        self.say("log", job.log("shard-0").splitlines()[-1])
        job.wait_until(lambda: job.warned("worker 1.* is lost"), "the worker that hangs counts as lost")
        job.kill("worker-1")
        job.worker(1)
        job.wait_until_steps()
        self.expect_resolves()

    def test_SluiceCoordinatorGone(self):
        job = self.job(shards=2).saves().start_all()
        self.watch(job)
        job.wait_until_complete()
        job.kill("shard-0")
        self.expect_fires(job, None)
        job.server(0)
        job.wait_until_steps()
        self.expect_resolves()

    def test_SluiceProcessLost(self):
        job = self.job().saves().start_all()
        self.watch(job)
        job.kill("worker-1")
        self.expect_fires(job, "worker 1.* it is lost, and the job waits for it")
        job.worker(1)
        job.wait_until_steps()
        self.expect_resolves()

    def replace_worker(self, job):
        """Kills a worker of a running job between two checkpoints and starts another one."""
        started = job.log("worker-1").count("joined")
        job.wait_until(lambda: job.status().get("phase") == "running" and job.step() > job.checkpoint("step") + 3, "steps after the checkpoint")
        job.kill("worker-1")
        job.worker(1)
        job.wait_until(lambda: job.log("worker-1").count("joined") > started, "the new worker has joined")

    def test_SluiceRollsBackOften(self):
        job = self.job().saves(replay_limit=0).start_all()
        self.watch(job)
        for number in range(4):
            self.replace_worker(job)
            job.wait_until(lambda: job.checkpoint("rollbacks") > number, f"rollback {number + 1}")
        self.expect_fires(job, None)
        self.assertTrue(self.prometheus.query('sluice_recovery_class{class="rollback"} == 1'))
        job.stop_all()
        job.saves().start_all()
        job.wait_until(lambda: self.prometheus.query('sluice_recovery_class{class="replay"} == 1'), "the job repairs losses in place")
        self.replace_worker(job)
        job.wait_until(lambda: job.checkpoint("repairs") > 0, "a repair")
        self.assertEqual(job.checkpoint("rollbacks"), 0)
        self.expect_resolves()

    def test_SluiceCheckpointOld(self):
        """A worker's disk hangs. Once it writes again, the next checkpoint is complete."""
        job = self.job().saves()
        job.server(0), job.worker(0), job.worker(1, faults="disk")
        self.watch(job)
        job.wait_until_complete()
        job.rules("disk", "fsync worker-1-term delay 90 1")
        self.expect_fires(job, "worker-1-term-0.state of the checkpoint after step .* to be written")
        self.say("logs", [line for name in job.running for line in job.log(name).splitlines() if "checkpoint" in line and "complete" not in line][-3:])
        self.expect_resolves()

    def test_SluiceCheckpointGivenUp(self):
        job = self.job().saves()
        job.server(0), job.worker(0), job.worker(1, faults="disk")
        self.watch(job)
        job.wait_until_complete()
        job.rules("disk", f"write worker-1-term {FULL}")
        self.expect_fires(job, "the checkpoint after step .*No space left on device")
        self.say("log", next(line for line in job.log("shard-0").splitlines() if "No space left" in line))
        job.rules("disk")
        self.expect_resolves()

    def test_SluiceRecordUnwritten(self):
        job = self.job().saves()
        job.server(0, faults="disk"), job.worker(0), job.worker(1)
        self.watch(job)
        job.wait_until_complete()
        job.rules("disk", f"write run.json {FULL}")
        job.kill("worker-1")
        job.worker(1)
        self.expect_fires(job, "the coordinator has been waiting for the record of term .*No space left on device")
        self.say("log", next(line for line in job.log("shard-0").splitlines() if "run.json" in line and "No space left" in line))
        job.rules("disk")
        job.wait_until_steps()
        self.expect_resolves()

    def slow_down(self, job):
        slowed = SlowedDown(job.running["worker-0"].pid, SLOWDOWN)
        self.addCleanup(slowed.end)

    def test_SluiceLossNotFinite(self):
        # The decay multiplies the parameters by about -10^6 in each step. A worker gives up after 20 steps that are not finite, so the steps must
        # take long enough for an alert, as those of a large model do.
        job = self.job("optimizer={name: sgd, lr: 1e6, weight_decay: 1}", "batch_size_per_worker=250", trains=True).saves().start_all()
        self.slow_down(job)
        self.prometheus = AlertWatch(self, job, LIMIT)
        self.begun = time.monotonic()
        self.expect_fires(job, "the loss of workers? .* is not finite")
        codes = job.end_all()
        last = job.log("shard-0").splitlines()[-1]
        self.say("the job ends", f"{codes}, {last}")
        self.assertRegex(last, "training diverged")
        # Every checkpoint contains parameters that have diverged.
        shutil.rmtree(job.checkpoints)
        job.settings.append("optimizer={name: sgd, lr: 0.01}")
        job.start_all()
        self.slow_down(job)
        job.wait_until_steps(2)
        self.expect_resolves()

    def test_SluiceContributionsSkipped(self):
        """A worker with a slow machine skips the steps that a quorum closed without it."""
        job = self.job("quorum=1", "straggler_timeout=1ms").saves()
        job.server(0), job.worker(0), job.worker(1, compute_ms=20 * COMPUTE_MS)
        self.prometheus = AlertWatch(self, job, LIMIT)
        self.begun = time.monotonic()
        self.expect_fires(job, "worker 1")
        job.kill("worker-1")
        job.worker(1)
        job.wait_until_steps()
        self.expect_resolves()

    def test_SluiceWaitsForOneWorker(self):
        job = self.job().saves()
        job.server(0), job.worker(0), job.worker(1)
        self.watch(job)
        job.kill("worker-1")
        job.worker(1, compute_ms=300)
        self.expect_fires(job, "the other worker waits for worker 1: .* computing")
        job.kill("worker-1")
        job.worker(1)
        job.wait_until_steps()
        self.expect_resolves()

    def test_SluiceWaitsOnLink(self):
        job = self.job(parameters=500_000).saves()
        link = PacedProxy()
        self.addCleanup(link.close)
        job.server(0), job.worker(0), job.worker(1, proxy=link)
        self.watch(job)
        link.bytes_per_second = SLOW
        self.expect_fires(job, "worker 1 waits on its link")
        rates = {labels["rank"]: rate for labels, rate in self.prometheus.query('sluice_link_rate_bytes_per_second{direction="up"}')}
        self.say("link rates", rates)
        self.assertLess(rates["1"], rates["0"] / 10)
        link.bytes_per_second = None
        self.expect_resolves()

    def test_SluiceResultLogFull(self):
        job = self.job().saves(interval=FOREVER, replay_limit="8MiB").start_all()
        self.watch(job)
        self.expect_fires(job, "the next loss rolls the job back to its checkpoint: .*keeps only")
        job.stop_all()
        job.saves(interval=5, replay_limit="8MiB").start_all()
        job.wait_until_steps(50)  # More than the log has space for.
        self.expect_resolves()

    def test_SluiceContributionsRefused(self):
        """A worker's link changes bytes. An elastic job goes on without this worker."""
        job = self.job("membership=elastic", "min_workers=1", "compression.uplink=none", trains=True).saves()
        link = CorruptingProxy()
        self.addCleanup(link.close)
        job.server(0), job.worker(0), job.worker(1, proxy=link)
        self.slow_down(job)
        self.watch(job)
        link.corrupts.set()
        self.expect_fires(job, None)
        job.wait_until_says("worker-1", "shard 0 refused .* from rank 1: .*damaged frame: its checksum is")
        self.say("log of the worker", job.log("worker-1").splitlines()[-1])
        job.wait_until_says("shard-0", "rank 1 .* left: shard 0 refused .*damaged frame")
        self.assertNotEqual(job.wait_until_ended("worker-1"), {"worker-1": 0})
        link.corrupts.clear()
        job.worker(1)
        job.wait_until_steps()
        self.expect_resolves()

    def test_SluiceFollowerLags(self):
        """The link of a follower is too slow for the changes of the parameters."""
        job = self.job("mode=async", "followers.every=1", parameters=1_000_000).start_all()
        link = PacedProxy()
        self.addCleanup(link.close)
        job.follow(link)
        job.wait_until_says("follower", "version", times=5)
        self.watch(job)
        link.bytes_per_second = 20_000
        self.expect_fires(job, None)
        self.say("followers", job.status()["followers"])
        self.assertGreater(job.status()["followers"]["lag_steps"], 120 / (3 * COMPUTE_MS / 1000))
        link.bytes_per_second = None
        self.expect_resolves()


class CompletenessTest(unittest.TestCase):
    def test_every_alert_has_a_test(self):
        self.assertEqual(sorted(names_of_alerts()), sorted(name.removeprefix("test_") for name in dir(AlertsTest) if name.startswith("test_")))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
    unknown = set(sys.argv[2:]) - set(names_of_alerts())
    if unknown:
        sys.exit(f"no alert is called {' or '.join(sorted(unknown))}. The alerts are: {', '.join(names_of_alerts())}")
    if shutil.which("prometheus") is None:
        print("prometheus is missing (Debian: prometheus): skipped")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *(f"AlertsTest.test_{name}" for name in sys.argv[2:])])
