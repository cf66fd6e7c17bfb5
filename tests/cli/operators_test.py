#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`sluice drain` and `sluice debug-bundle` with a real job that has a token, and without any job.

usage: operators_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tarfile
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


class DebugBundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "out.tar.gz"
        (self.folder / "temporary").mkdir()

    def bundle(self, *arguments):
        """Returns the exit code, the output, and the texts in the archive by name."""
        code, output = sluice("debug-bundle", "--output", str(self.output), *arguments, TMPDIR=str(self.folder / "temporary"))
        self.assertEqual(list((self.folder / "temporary").iterdir()), [], "a folder was left")
        files = {}
        if self.output.exists() and code == 0:
            with tarfile.open(self.output) as archive:
                for member in archive.getmembers():
                    if member.isfile():
                        files[member.name.removeprefix("sluice-debug/")] = archive.extractfile(member).read().decode()
        return code, output, files

    def test_a_job_with_a_token(self):
        job = Job(self)
        token = job.token.read_text().strip()
        own = self.folder / "own.yaml"
        own.write_text(pathlib.Path(JOB).read_text() + "# a comment with a password\n")
        with open(job.logs / "script.log", "w") as log:
            log.write(f"a script logs {token}\n")
        unused = f"127.0.0.1:{free_port()}"
        code, output, files = self.bundle(*job.flags, "--log-dir", str(job.logs), "--job", str(own), "--metrics", job.page,
                                          "--metrics", unused)
        self.assertEqual(code, 0, output)
        page, logs = job.page.replace(":", "_"), {f"logs-1/{path.name}" for path in job.logs.glob("*.log")}
        self.assertEqual(set(files), {"status.json", "why.txt", "version.txt", "job.yaml", "missing.txt", f"metrics/1-{page}.txt"} | logs)
        self.assertGreaterEqual(len(logs), 5)
        self.assertEqual(json.loads(files["status.json"])["job_name"], "survival")
        self.assertRegex(files["why.txt"], "^The job survival ")
        self.assertRegex(files["version.txt"], r"^sluice \d+\.")
        self.assertIn("sluice_", files[f"metrics/1-{page}.txt"])
        self.assertEqual(files["logs-1/script.log"], "a script logs [secret removed]\n")
        self.assertRegex(files["job.yaml"], "(?m)^name: survival$")
        self.assertEqual(sorted(line.split(": ")[0] for line in files["missing.txt"].splitlines()),
                         sorted([str(job.token), f"metrics of {unused}"]))
        for name, text in files.items():
            self.assertNotIn(token, text, name)
            self.assertNotIn("password", text, name)
        self.assertNotIn(token, output)
        self.assertEqual(stat.S_IMODE(self.output.stat().st_mode), 0o600)
        self.assertIn("Look at it before you send it.", output)

        # A wrong token keeps only the status out.
        wrong = self.folder / "wrong"
        wrong.write_text("0123456789abcdef\n")
        self.output = self.folder / "second.tar.gz"
        code, output, files = self.bundle(*job.flags[:2], "--token-file", str(wrong), "--log-dir", str(job.logs))
        self.assertEqual(code, 0, output)
        self.assertEqual(set(files), {"version.txt", "missing.txt"} | logs)
        self.assertIn("token", files["missing.txt"].splitlines()[0])
        self.assertNotIn(token, "".join(files.values()))

    def test_nothing_answers(self):
        unused = f"127.0.0.1:{free_port()}"
        code, output, files = self.bundle("--coordinator", unused, "--log-dir", "/none", "--job", "/none.yaml")
        self.assertEqual(code, 0, output)
        self.assertEqual(set(files), {"version.txt", "missing.txt"})
        lines = files["missing.txt"].splitlines()
        self.assertEqual(len(lines), 3, lines)
        for line in lines:
            self.assertIn(f"  {line}\n", output)

    def test_an_existing_file_stays(self):
        self.output.write_text("mine")
        code, output, _ = self.bundle()
        self.assertEqual(code, 1, output)
        self.assertIn("File exists", output)
        self.assertEqual(self.output.read_text(), "mine")

    def test_arguments_of_an_own_program_are_left_out(self):
        own = self.folder / "own.yaml"
        own.write_text("name: own\nbatch_size_per_worker: 1\nsteps: 1\noptimizer: {lr: 0.1}\ncommand: [python, train.py, --key, hush]\n")
        code, output, files = self.bundle("--coordinator", f"127.0.0.1:{free_port()}", "--job", str(own))
        self.assertEqual(code, 0, output)
        self.assertIn("job.yaml", files, output)
        self.assertNotIn("hush", "".join(files.values()))
        own.write_text("name: own\nkey: hush\n")
        self.output = self.folder / "second.tar.gz"
        code, output, files = self.bundle("--coordinator", f"127.0.0.1:{free_port()}", "--job", str(own))
        self.assertNotIn("hush", output + "".join(files.values()))
        self.assertIn("is not a job file", files["missing.txt"])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
