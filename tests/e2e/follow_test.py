#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Followers of real jobs: `sluice follow` has the parameters of the job bit for bit, and goes on after cuts, kills of shards and relays, and a
rollback. Relays for followers take one copy from the job.

usage: follow_test.py FOLDER_OF_PROGRAMS
"""
import json
import pathlib
import re
import struct
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hostile"))

from faulty_job import FaultyJob, Link  # noqa: E402
from processes import SlowedDown, free_port  # noqa: E402
from protected_job import Secrets  # noqa: E402

PROGRAMS = pathlib.Path()
SLOW = 8  # Slowdown factor of a worker: followers must see several versions.
FOLLOWED = ("optimizer.location=shards", "followers.every=1", "compression.uplink=int8", "compression.downlink=int8", "steps=300")


def read_model(path):
    """Returns the metadata and the tensors of a safetensors file as {name: (type, shape, bytes)}."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    values = data[8 + size:]
    return metadata, {name: (entry["dtype"], entry["shape"], values[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def to_bf16(values):
    """Rounds the bytes of floats to bfloat16, ties to even."""
    words = struct.unpack(f"<{len(values) // 4}I", values)
    return struct.pack(f"<{len(words)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))


class FollowTest(unittest.TestCase):
    def job(self, *settings, shards=2, ranks=2):
        job = FaultyJob(self, PROGRAMS, *FOLLOWED, *settings, shards=shards)
        job.settings.append(f"output={job.folder / 'output'}")
        self.ranks = ranks
        return job

    def start(self, job, *server_flags, worker_flags=()):
        for shard in range(len(job.ports)):
            job.server(shard, *server_flags)
        for rank in range(self.ranks):
            job.worker(rank, "--threads", 1, *worker_flags)

    def follow(self, job, name="follower", port=None, *flags):
        """Starts `sluice follow`, which writes into the folder `name`."""
        command = [PROGRAMS / "sluice", "follow", f"127.0.0.1:{port or job.ports[0]}", "-o", job.folder / name, *flags]
        with job.log_path(name).open("a") as log:
            job.running[name] = subprocess.Popen([*map(str, command)], stdout=log, stderr=subprocess.STDOUT)

    def relay(self, job, name="relay", port=None, upstream=None):
        port = port or free_port()
        command = [PROGRAMS / "sluice-relay", "--followers-of", f"127.0.0.1:{upstream or job.ports[0]}", "--listen", f"127.0.0.1:{port}"]
        with job.log_path(name).open("a") as log:
            job.running[name] = subprocess.Popen([*map(str, command)], stdout=log, stderr=subprocess.STDOUT)
        return port

    def versions(self, job, name="follower"):
        """Returns (version, received anchors) of each version in the log."""
        return [(int(version), int(anchors)) for version, anchors in
                re.findall(r"version (\d+)(?: of term \d+)?: \d+ bytes received .*, (\d+) anchor", job.log(name))]

    def wait_for_versions(self, job, count, name="follower"):
        job.wait_until(lambda: len(self.versions(job, name)) >= count, f"{name} has {count} versions")

    def expect_parameters(self, job, name="follower"):
        """The follower's model equals the parameters that the job wrote at its end."""
        metadata, model = read_model(job.folder / name / "model.safetensors")
        _, parameters = read_model(job.folder / "output" / "parameters.safetensors")
        self.assertEqual(model.keys(), parameters.keys())
        for tensor, (kind, shape, values) in parameters.items():
            self.assertEqual((kind, shape), ("F32", model[tensor][1]))
            self.assertEqual(model[tensor][0], "BF16")
            self.assertEqual(to_bf16(values), model[tensor][2], tensor)
        return int(metadata["sluice.version"])

    def expect_no_second_anchor(self, job, name="follower"):
        """Each of the two shards sent one anchor, for the first version."""
        self.assertEqual([anchors for _, anchors in self.versions(job, name)], [2] + [0] * (len(self.versions(job, name)) - 1))

    def test_a_follower_has_each_version_bit_for_bit(self):
        job = self.job()
        self.start(job)
        with SlowedDown(job.running["worker-1"].pid, SLOW):
            self.follow(job, "follower", None, "--patches", job.folder / "patches", "--anchor-every", 10, "--exec",
                        f"echo $SLUICE_VERSION $SLUICE_MODEL $SLUICE_PATCH >>{job.folder}/executed")
            self.wait_for_versions(job, 25)
        job.wait_until_done(self, ranks=2)
        self.assertEqual(self.expect_parameters(job), 300)
        self.expect_no_second_anchor(job)
        versions = [version for version, _ in self.versions(job)]
        self.assertEqual(versions, sorted(set(versions)))
        executed = [line.split() for line in (job.folder / "executed").read_text().splitlines()]
        self.assertEqual([int(line[0]) for line in executed], versions)
        self.assertEqual(executed[-1][1], str(job.folder / "follower" / "model.safetensors"))
        # The folder's last two anchors and what follows them lead to the same model.
        names = sorted(path.name for path in (job.folder / "patches").iterdir())
        anchors = [index for index, name in enumerate(names) if name.endswith("-anchor.sluicepatch")]
        self.assertEqual(len(anchors), 2)
        self.assertEqual(anchors[0], 0)
        self.assertEqual(executed[-1][2], str(job.folder / "patches" / names[-1]))
        chain = [job.folder / "patches" / name for name in names[anchors[1]:]]
        subprocess.run([PROGRAMS / "sluice", "patch", "apply", *chain, "-o", job.folder / "applied.safetensors"], check=True, timeout=60)
        self.assertEqual(read_model(job.folder / "applied.safetensors")[1], read_model(job.folder / "follower" / "model.safetensors")[1])

    def test_a_cut_costs_no_anchor(self):
        job = self.job()
        self.start(job)
        link = Link(job.ports[0])
        self.addCleanup(link.close)
        with SlowedDown(job.running["worker-1"].pid, SLOW):
            self.follow(job, "follower", link.port)
            for versions in (5, 15, 25):
                self.wait_for_versions(job, versions)
                link.cut()
            self.wait_for_versions(job, 30)
        job.wait_until_done(self, ranks=2)
        self.expect_parameters(job)
        self.expect_no_second_anchor(job)

    def test_followers_survive_the_kill_of_each_shard(self):
        job = self.job("checkpoint.interval=20")
        job.settings.append(f"checkpoint.dir={job.checkpoints}")
        self.start(job)
        with SlowedDown(job.running["worker-1"].pid, SLOW):
            self.follow(job)
            for shard in (1, 0):
                job.wait_until_complete(max([0, *job.complete()]) + 1)
                self.wait_for_versions(job, len(self.versions(job)) + 5)
                job.kill(f"shard-{shard}")
                job.server(shard)
            self.wait_for_versions(job, len(self.versions(job)) + 5)
        job.wait_until_done(self, ranks=2)
        self.assertEqual(self.expect_parameters(job), 300)

    def test_rank_0_uploads_the_parameters_that_workers_keep(self):
        job = self.job("optimizer.location=workers", "checkpoint.interval=20")
        job.settings.append(f"checkpoint.dir={job.checkpoints}")
        self.start(job)
        with SlowedDown(job.running["worker-1"].pid, SLOW):
            self.follow(job)
            self.wait_for_versions(job, 5)
            self.expect_no_second_anchor(job)
            job.wait_until_complete(max([0, *job.complete()]) + 1)
            job.kill("shard-1")
            job.server(1)
            self.wait_for_versions(job, len(self.versions(job)) + 5)
        job.wait_until_done(self, ranks=2)
        self.assertEqual(self.expect_parameters(job), 300)

    def test_relays_take_one_copy_and_survive_kills(self):
        job = self.job()
        link = Link(job.ports[0])
        self.addCleanup(link.close)
        self.start(job)
        with SlowedDown(job.running["worker-1"].pid, 2 * SLOW):
            port = self.relay(job, upstream=link.port)
            job.wait_until_says("relay", "serves followers")
            before = link.connections
            names = [f"follower-{i}" for i in range(3)]
            for name in names:
                self.follow(job, name, port)
            for name in names:
                self.wait_for_versions(job, 5, name)
            self.assertEqual(link.connections, before + 1)  # One stream of shard 0 for all followers.
            second = self.relay(job, "relay-of-relay", upstream=port)
            job.wait_until_says("relay-of-relay", "serves followers")
            self.follow(job, "far", second)
            self.wait_for_versions(job, 3, "far")
            job.kill("relay")
            self.relay(job, "relay", port, upstream=link.port)
            for name in [*names, "far"]:
                self.wait_for_versions(job, len(self.versions(job, name)) + 3, name)
        job.wait_until_done(self, ranks=2)
        for name in [*names, "far"]:
            self.assertEqual(self.expect_parameters(job, name), 300)

    def refusal(self, job, *flags, code=1):
        done = subprocess.run([str(word) for word in (PROGRAMS / "sluice", "follow", f"127.0.0.1:{job.ports[0]}", "-o", job.folder / "refused",
                                                      "--patience", 2, *flags)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_refusals_say_what_to_do(self):
        job = self.job("followers.max_connected=1", ranks=1)
        job.settings += ["workers=1"]
        secrets = Secrets(job.folder)
        self.assertIn("connection refused", self.refusal(job, code=75))
        self.start(job, *secrets.of_server(), worker_flags=secrets.of("worker"))
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            self.follow(job, "follower", None, *map(str, secrets.of("follower")))
            self.wait_for_versions(job, 2)
            self.assertIn("needs the role follower", self.refusal(job, *secrets.of("worker")))
            self.assertIn("does not offer fp32, but bf16 (followers.types)", self.refusal(job, "--type", "fp32", *secrets.of("follower")))
            self.assertIn("1 followers are connected (followers.max_connected)", self.refusal(job, *secrets.of("follower"), code=75))
            self.assertIn("--token-file", self.refusal(job))
        job.wait_until_done(self, ranks=1)

    def test_a_job_without_followers_says_so(self):
        job = self.job(ranks=1)
        job.settings = ["workers=1", "steps=300"]
        self.start(job)
        job.wait_until_says("shard-0", "the job runs")
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            self.assertIn("add the section `followers`", self.refusal(job))
        job.kill_all()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
