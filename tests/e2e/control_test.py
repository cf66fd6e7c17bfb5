#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job whose compression adapts to its links (control.policy bandwidth), as real processes on loopback: plans follow measurements, are
shown everywhere and survive the loss of shard 0, and all workers end with the same parameters.

usage: control_test.py FOLDER_OF_PROGRAMS
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from processes import free_port, wait_until

BIN = pathlib.Path()
LIMIT = 240  # In seconds, for each operation. A hang then fails.
ROUND = 5  # In steps.
ROUNDS_MAX = 60  # Limit for a new plan. A plan needs three measured steps, which count once all workers have measured them.
JOB = """\
name: control
workers: 2
shards: 2
model: {name: mlp, hidden: [64]}
data: {format: synthetic, limit: 1000, test_limit: 128}
batch_size_per_worker: 16
steps: 1000000
optimizer: {name: sgd, lr: 0.01}
compression: {uplink: topk:1%+int4, downlink: topk:1%+int4}
control: {policy: bandwidth, candidates: [topk:1%+int4]}
server: {heartbeat_interval: 200ms, lease_timeout: 60s}
"""


class ControlTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = []
        self.addCleanup(self.stop)
        self.grpc, self.http = free_port(), free_port()

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def start(self, name, program, *arguments, **keywords):
        command = [str(BIN / program), "--job", str(self.folder / "job.yaml"), *arguments]
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **keywords))
        return self.processes[-1]

    def start_shard(self, shard):
        own = [f"127.0.0.1:{self.grpc}", "--http-listen", f"127.0.0.1:{self.http}"] if shard == 0 else \
              ["127.0.0.1:0", "--http-listen", "off", "--coordinator", f"127.0.0.1:{self.grpc}"]
        return self.start(f"shard-{shard}", "sluice-server", "--shard", str(shard), "--listen", *own)

    def start_job(self, more="", job=JOB, worker_flags=()):
        (self.folder / "job.yaml").write_text(job + more)
        self.shards = [self.start_shard(shard) for shard in range(2)]
        self.workers = [self.start(f"worker-{rank}", "synthetic_worker", "--coordinator", f"127.0.0.1:{self.grpc}", "--rank",
                                   str(rank), "--parameters", "400000", "--compute-ms", "20", "--steps", "1000000", "--turns", *worker_flags,
                                   stdin=subprocess.PIPE, text=True) for rank in range(2)]
        self.steps = 0

    def take_steps(self):
        """All workers have the same parameters."""
        self.steps += ROUND
        for worker in self.workers:
            worker.stdin.write(f"{ROUND}\n")
            worker.stdin.flush()
        for rank in range(2):
            wait_until(lambda: f"step {self.steps} " in self.log(f"worker-{rank}"), f"step {self.steps}", LIMIT)

    def codecs(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/status.json", timeout=LIMIT) as answer:
            return json.load(answer)["compression"]

    def await_plan(self, known):
        """Returns a plan that is not in `known`; takes steps until there is one."""
        for _ in range(ROUNDS_MAX):
            self.take_steps()
            plans = [plan for plan in self.codecs()["plans"] if plan["id"] not in known]
            if plans:
                return plans[0]
        raise AssertionError(f"no plan in {self.steps} steps; {self.codecs()}")

    def end_with_equal_parameters(self):
        for worker in self.workers:
            worker.stdin.close()
        for process in [*self.workers, *self.shards]:
            self.assertEqual(process.wait(LIMIT), 0)
        parameters = [next(line for line in self.log(f"worker-{rank}").splitlines() if line.startswith("parameters "))
                      for rank in range(2)]
        self.assertEqual(parameters[0], parameters[1])

    def test_plans_follow_what_is_measured(self):
        self.start_job()
        self.take_steps()
        plan = self.await_plan({1})
        self.assertIn("topk:", plan["what"])
        shown = subprocess.run([BIN / "sluice", "status", "--coordinator", f"127.0.0.1:{self.grpc}"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
        self.assertIn("policy bandwidth", shown)
        # No worker takes a step now, so the plan is still among the latest plans.
        self.assertIn(f"plan {plan['id']} from step {plan['effective_step']}: ", shown)
        self.assertIn(f"plan {plan['id']} from step {plan['effective_step']}: {plan['reason']}", self.log("shard-0"))
        self.assertIn("plan 2 from step", self.log("shard-0"))
        self.assertIn(": links are known now", self.log("shard-0"))
        for _ in range(4):
            self.take_steps()
        self.end_with_equal_parameters()

    def test_workers_that_do_not_wait_take_plans_as_they_come(self):
        self.start_job(job=JOB.replace("workers: 2", "mode: async\nworkers: 2"))
        self.take_steps()
        plan = self.await_plan({1})
        self.assertIn(": links are known now", self.log("shard-0"))
        # Both workers must use the plan from the step after they receive it, and shard 1 must accept the frames.
        self.take_steps()
        self.take_steps()
        self.assertGreaterEqual(self.codecs()["plan"], plan["id"])
        # One worker continues alone. Shard 0 makes plans as the other worker follows.
        self.workers[0].stdin.write("30\n")
        self.workers[0].stdin.flush()
        wait_until(lambda: f"step {self.steps + 30} " in self.log("worker-0"), "the step of who is ahead", LIMIT)
        self.workers[1].stdin.write("30\n")
        self.workers[1].stdin.flush()
        wait_until(lambda: f"step {self.steps + 30} " in self.log("worker-1"), "the step of who is behind", LIMIT)
        for worker in self.workers:
            worker.stdin.close()
        for process in [*self.workers, *self.shards]:
            self.assertEqual(process.wait(LIMIT), 0)

    def auto_in(self, kind):
        self.start_job(job=JOB.replace("{policy: bandwidth, candidates: [topk:1%+int4]}", "{policy: auto}").replace(
            "workers: 2", f"{kind}\nworkers: 2"))
        self.take_steps()
        self.assertIn("rank 0 sends", self.await_plan({1})["reason"])
        for worker in self.workers:
            worker.stdin.close()
        for process in [*self.workers, *self.shards]:
            self.assertEqual(process.wait(LIMIT), 0)

    def test_auto_chooses_codecs_for_workers_that_do_not_wait(self):
        self.auto_in("mode: ssp\nstaleness: 2")

    def test_auto_chooses_codecs_with_a_quorum(self):
        self.auto_in("quorum: 1")

    def test_auto_chooses_codecs_for_workers_that_come_and_go(self):
        self.auto_in(f"membership: elastic\ncheckpoint: {{dir: {self.folder / 'checkpoints'}, interval: 1000000}}")

    def test_auto_chooses_codecs_by_what_is_measured(self):
        self.start_job(job=JOB.replace("{policy: bandwidth, candidates: [topk:1%+int4]}", "{policy: auto}"))
        self.take_steps()
        plan = self.await_plan({1})
        self.assertIn("rank 0 sends", plan["reason"])
        self.assertIn(": links are known now", self.log("shard-0"))
        for _ in range(4):
            self.take_steps()
        self.end_with_equal_parameters()

    def test_accuracy_sends_more_where_tests_are_below_a_dense_runs(self):
        reference = self.folder / "scalars.csv"
        reference.write_text("step,epoch,loss,test_accuracy\n1,0,2.5,0.9\n2,0,2.4,\n")
        self.start_job(job=JOB.replace("{policy: bandwidth, candidates: [topk:1%+int4]}", f"{{policy: accuracy, reference: {reference}}}"),
                       worker_flags=["--tested", "0.5"])
        # Every test is below the reference, so densities must rise to their maximum. After that, no other plan may follow.
        for _ in range(ROUNDS_MAX):
            self.take_steps()
            if "25 % of the values instead of 8 %" in self.log("shard-0"):
                break
        self.assertIn("50.00 % at step", self.log("shard-0"))
        self.assertRegex(self.log("shard-0"), r"where the reference has 90.00 % at step \d+ \(tolerance 0.5\): 25 % of the values instead of 8 %")
        self.assertIn("8 % of the values instead of 1 %", self.log("shard-0"))
        known = {plan["id"] for plan in self.codecs()["plans"]}
        for _ in range(4):
            self.take_steps()
        self.assertEqual({plan["id"] for plan in self.codecs()["plans"]}, known)
        self.end_with_equal_parameters()

    def test_a_shard_0_that_is_started_again_keeps_what_workers_were_told(self):
        self.start_job(f"checkpoint: {{dir: {self.folder / 'checkpoints'}, interval: 1000000}}\n")
        plan = self.await_plan({1})
        # A plan from the last step may not have reached any worker, and then need not survive. Take steps until it has.
        while self.codecs()["plan"] < plan["id"]:
            self.take_steps()
        self.shards[0].kill()
        self.shards[0].wait()
        self.shards[0] = self.start_shard(0)
        self.take_steps()
        # After the repair in place, the announced plan must be known again, and later plans must continue from there.
        self.assertGreaterEqual(self.codecs()["plan"], plan["id"])
        self.assertNotIn("rollback", self.log("worker-0"))
        self.take_steps()
        self.end_with_equal_parameters()


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
