#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Members, who hold the workers' token, attack a running job that has a role file. Afterwards the job has the result of an undisturbed
one, its servers have grown by less than 64 MB and hold no more descriptors than before.

usage: members_test.py FOLDER_OF_PROGRAMS [ATTACK...]     all attacks if none is named
"""
import os
import pathlib
import re
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import grpc_attacks  # noqa: E402
import http_attacks  # noqa: E402
import member_attacks  # noqa: E402
from faulty_job import FaultyJob  # noqa: E402
from grpc_client import ask  # noqa: E402
from hostile_test import GROWTH, Growth  # noqa: E402
from processes import SlowedDown  # noqa: E402
from protected_job import Member, OpenLink, Secrets  # noqa: E402

PROGRAMS = pathlib.Path()
ATTACKS = []
SLOW = 25  # Slowdown factor: the job must not end before the attacks.
SETTINGS = ("steps=1400", "server.lease_timeout=60s", "checkpoint.store=shards", "checkpoint.interval=10")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class MembersTest(unittest.TestCase):
    def start(self):
        job = FaultyJob(self, PROGRAMS, *SETTINGS)
        job.settings.append(f"checkpoint.dir={job.checkpoints}")
        secrets, link = Secrets(job.folder), OpenLink(job.ports[0])
        self.addCleanup(link.close)
        for shard in range(2):
            job.server(shard, *secrets.of_server())
        job.worker(0, "--threads", 1, *secrets.of("worker"))
        job.worker(1, "--threads", 1, *secrets.of("worker"), coordinator=link.port)
        member = Member(job, secrets, link)
        member.find_secret()
        return job, member

    def test_members(self):
        job, _ = self.start()
        expected = job.wait_until_done(self, ranks=2)
        job, member = self.start()
        servers = [job.running[f"shard-{shard}"].pid for shard in range(2)]
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            member.expect_checkpoint()
            held = max(map(descriptors, servers))
            for attack in ATTACKS:
                with self.subTest(attack.__name__):
                    growth, begun = Growth(servers), time.monotonic()
                    try:
                        member.find_secret()
                        attack(member)
                        member.expect_checkpoint()
                    finally:
                        most = growth.end()
                        print(f"{attack.__name__}: {time.monotonic() - begun:.1f} s, a server grew by {most:.1f} MB", flush=True)
                    self.assertLess(most, GROWTH, "a server's memory grew by too many MB")
            self.assertIsNone(job.running["worker-0"].poll(), "the attacks came too late\n" + job.logs())
            job.wait_until(lambda: max(map(descriptors, servers)) <= held + 2, f"the servers hold {held} descriptors again")
        self.assertEqual(job.wait_until_done(self, ranks=2), expected)
        member_attacks.expect_clean_logs(job)

    def test_a_reason_that_is_cut_reaches_all_processes(self):
        """A worker may end its job. The end must still be readable, whatever the worker says of it."""
        job, member = self.start()
        with SlowedDown(job.running["worker-0"].pid, SLOW):
            reason = member_attacks.FORGED + "x" * (4095 - len(member_attacks.FORGED)) + "é" * 3000
            ask(job.ports[0], member.token, member_attacks.LEAVE, {"sender": member.stolen, "reason": reason})
            codes = job.wait_until_ended()
        self.assertNotIn(0, codes.values(), job.logs())
        for name in codes:
            self.assertNotRegex(job.log(name), "No message returned|libprotobuf")
        self.assertIn("forged line", job.log("worker-0"), "the reason did not arrive")
        member_attacks.expect_clean_logs(job)


class ReadmeTest(unittest.TestCase):
    def test_the_table_has_exactly_the_attacks_of_both_tests(self):
        text = (HERE / "README.md").read_text()
        attacks = {attack.__name__ for attack in (*grpc_attacks.ALL, *http_attacks.ALL, *member_attacks.ALL)}
        rows = [line for line in text.splitlines() if line.startswith("|") and "_attacks." in line]
        named = {name for row in rows for name in re.findall(r"`(?:\w+_attacks\.)?([a-z0-9_]+)`", row)}
        self.assertEqual(named, attacks)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
    known = {attack.__name__: attack for attack in member_attacks.ALL}
    ATTACKS = [known[name] for name in sys.argv[2:]] or list(member_attacks.ALL)
    unittest.main(argv=sys.argv[:1])
