# SPDX-License-Identifier: Apache-2.0
"""Strangers and members who attack a job again and again, beside other faults."""
import collections
import contextlib
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import grpc_attacks  # noqa: E402
import member_attacks  # noqa: E402
from protected_job import Member  # noqa: E402

# Those after which a process keeps much freed memory, up to a limit that it reaches after about a dozen of each: glibc keeps it for each arena.
HEAVY = (grpc_attacks.many_pings, grpc_attacks.reset_streams, member_attacks.random_protobuf)
# A gRPC before 1.56.2 does not withstand the one that is missing.
STRANGERS = [attack for attack in grpc_attacks.ALL if attack is not grpc_attacks.string_without_end]
ATTACKS = [*STRANGERS, *member_attacks.ALL]


class Stranger:
    """The target of a stranger's attack. Whether the job still answers shows in its checkpoints, so that nothing is checked here."""

    def __init__(self, member):
        self.job, self.token, self.descriptors = member.job, member.token, 300

    def expect_grpc(self, when):
        pass

    expect_all_ports = expect_grpc


class HostileClients:
    """Attacks the job of a Member. Its failures do not count, because a shard may be down at any time: what counts is that the job goes on."""

    def __init__(self, job, secrets, link, chance, first=()):
        self.member, self.chance = Member(job, secrets, link, chance.getrandbits(32)), chance
        self.counts, self.left = collections.Counter(), list(first)

    def attack(self):
        """Makes one attack and returns its name. After `first`, every attack comes once before one comes again."""
        if not self.left:
            self.left = self.chance.sample(ATTACKS, len(ATTACKS))
        attack = self.left.pop()
        self.counts[attack.__name__] += 1
        with contextlib.suppress(AssertionError, OSError):
            self.member.find_secret()
            attack(Stranger(self.member) if attack in STRANGERS else self.member)
        return attack.__name__
