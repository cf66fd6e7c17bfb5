#!/usr/bin/env python3
"""`sluice drain` with a real job that has a token, and without any job.

usage: operators_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

E2E = pathlib.Path(__file__).resolve().parent.parent / "e2e"
sys.path.insert(0, str(E2E))
import processes
from processes import command_line, free_port

JOB = str(E2E / "survival.yaml")  # Two workers, two shards.
BIN = pathlib.Path()
LIMIT = 120  # Timeout in seconds for any state, so that a hang fails the test instead of blocking it.


def wait_until(condition, what):
    return processes.wait_until(condition, what, LIMIT)


def sluice(*arguments, **environment):
    """Returns (exit code, stdout and stderr)."""
    done = subprocess.run([str(BIN / "sluice"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, env=os.environ | {"GRPC_VERBOSITY": "NONE"} | environment)
    return done.returncode, done.stdout


class Job:
    """`sluice run` of a job that ends only when the test does. With `checkpoints`, it saves only those that are requested."""

    def __init__(self, test, checkpoints=False):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.logs, self.token = self.folder / "logs", self.folder / "logs/token"
        self.page = f"127.0.0.1:{free_port()}"
        settings = ["steps=10000000", "server.lease_timeout=3s"]
        if checkpoints:
            settings += [f"checkpoint.dir={self.folder}/checkpoints", "checkpoint.interval=1000000"]
        sets = [word for setting in settings for word in ("--set", setting)]
        with open(self.folder / "output", "w") as output:
            self.process = subprocess.Popen(
                [str(BIN / "sluice"), "run", JOB, "--log-dir", str(self.logs), "--http-listen", self.page, *sets],
                stdout=output, stderr=subprocess.STDOUT)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)  # The kernel then kills the job's processes too.
        wait_until(lambda: len(self.children()) == 4, "all processes started")
        shard = command_line(self.children()["shard 0"])
        self.flags = ["--coordinator", shard[shard.index("--listen") + 1], "--token-file", str(self.token)]
        wait_until(lambda: self.closed() > 0, "the first step")

    def children(self):
        """Returns the process ids by role."""
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "output").read_text())
        found = {}
        pid = self.process.pid
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            line = command_line(child)
            for program, flag, role in (("sluice-server", "--shard", "shard"), ("sluice-worker", "--rank", "worker")):
                if os.path.basename(line[0]) == program:
                    found[f"{role} {line[line.index(flag) + 1]}"] = int(child)
        return found

    def status(self):
        code, output = sluice("status", "--json", *self.flags)
        return json.loads(output) if code == 0 else {}

    def closed(self):
        return min((int(shard["highest_closed_step"]) for shard in self.status().get("shards", [])), default=0)

    def drain(self, *arguments):
        return sluice("drain", *arguments, *self.flags)


class Drain(unittest.TestCase):
    def test_a_shard_is_restarted_without_the_loss_of_a_step(self):
        job = Job(self, checkpoints=True)
        code, output = job.drain("1", "--check")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"^Shard 1 \(127.0.0.1:\d+\) of the job survival may be restarted now\. There is no checkpoint yet\.")
        self.assertEqual(int(job.status()["checkpoint_step"]), 0, "--check requested a checkpoint")
        code, output = job.drain("1")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"^Shard 1 .* may be restarted now\. The newest checkpoint is that after step [1-9]\d*, .* no step is lost\.")
        self.assertGreater(int(job.status()["checkpoint_step"]), 0)
        self.assertEqual(job.drain("2"), (1, "error: the job survival has no shard 2: its shards are 0 to 1\n"))

        os.kill(job.children()["shard 1"], signal.SIGKILL)  # `sluice run` starts it again.
        wait_until(lambda: job.status().get("repairs"), "the repair")
        self.assertEqual(job.status()["rollbacks"], 0)
        wait_until(lambda: job.drain("0")[0] == 0, "an answer for the next shard")

        os.kill(job.children()["worker 1"], signal.SIGSTOP)
        code, output = job.drain("0")  # The checkpoint cannot complete; the loss ends the wait for it.
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"^Do not restart shard 0 .* now: the job waits for worker 1, which must return first\.")

    def test_a_job_without_checkpoints(self):
        code, output = Job(self).drain("0")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, r"^Do not restart shard 0 .*: it has no checkpoints, so the loss of any process ends it\.")

    def test_no_coordinator(self):
        address = f"127.0.0.1:{free_port()}"
        code, output = sluice("drain", "0", "--coordinator", address)
        self.assertEqual(code, 1, output)
        self.assertIn(f"error: nothing answers at {address}", output)

    def test_wrong_flags(self):
        for arguments in ([], ["x"], ["-1"], ["0", "--timeout", "0"], ["0", "--token-file", "/none"]):
            self.assertEqual(sluice("drain", *arguments)[0], 2, arguments)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
