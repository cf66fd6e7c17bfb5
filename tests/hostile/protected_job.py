# SPDX-License-Identifier: Apache-2.0
"""A job whose servers have a role file, and what a member learns who holds the workers' token and listens to the traffic of rank 1."""
import json
import random
import secrets
import subprocess

from faulty_job import Link
from grpc_attacks import DATA, frames
from messages import decode

ROLES = ("observer", "worker", "server", "follower", "administrator")


class Secrets:
    """A role file with a token for each role, and a file for each token."""

    def __init__(self, folder):
        self.folder = folder
        self.tokens = {role: secrets.token_hex(16) for role in ROLES}
        for role, token in self.tokens.items():
            self.write(f"token-{role}", token)
        self.write("roles", "".join(f"{role} token {token}\n" for role, token in self.tokens.items()))

    def write(self, name, text):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)

    def of(self, role):
        return ("--token-file", self.folder / f"token-{role}")

    def of_server(self):
        return ("--role-file", self.folder / "roles", *self.of("server"))


class OpenLink(Link):
    """A link that keeps the first bytes of both directions, as one who listens to plaintext would."""

    KEPT = 1 << 20  # In bytes, of each connection and direction.
    CONNECTIONS = 40

    def __init__(self, backend):
        self.kept = {}
        super().__init__(backend)

    def observe(self, connection, direction, piece):
        kept = self.kept.setdefault((connection, direction), bytearray())
        for old in [key for key in list(self.kept) if key[0] <= connection - self.CONNECTIONS]:
            self.kept.pop(old, None)
        kept += piece[:max(0, self.KEPT - len(kept))]

    def messages(self, direction):
        """Returns all messages of all calls."""
        prelude = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") if direction == "there" else 0
        found = []
        for (_, way), kept in list(self.kept.items()):
            content = {}
            for kind, stream, payload in frames(bytes(kept[prelude:])) if way == direction else ():
                if kind == DATA:
                    content[stream] = content.get(stream, b"") + payload
            for data in content.values():
                while len(data) >= 5 and len(data) >= 5 + (size := int.from_bytes(data[1:5], "big")):
                    found.append(data[5:5 + size])
                    data = data[5 + size:]
        return found


class Member:
    """Holds the token of the workers. `stolen` is the sender of rank 1 with the secret from its Join, and `join` that rank's request."""

    def __init__(self, job, secrets_, link, seed=1):
        self.job, self.token, self.link, self.secrets = job, secrets_.tokens["worker"], link, secrets_
        self.chance = random.Random(seed)

    def find_secret(self):
        """Waits for the newest worker's Join. A worker that starts again has another secret."""
        def find():
            for reply in map(lambda data: decode("JoinReply", data), reversed(self.link.messages("back"))):
                if {"job_uid", "incarnation", "lease_ms"} <= reply.keys():
                    return reply
            return None
        reply = self.job.wait_until(find, "worker 1 has joined", 20)
        self.stolen = {key: reply.get(key, 0) for key in ("job_uid", "term", "rank", "incarnation", "generation")}
        self.join = next(data for data in reversed(self.link.messages("there")) if b"survival" in data[:20])

    def expect_checkpoint(self):
        """Waits for a new checkpoint, which needs all processes of the job."""
        before = max([0, *self.job.complete()])
        self.job.wait_until(lambda: max([0, *self.job.complete()]) > before, f"a checkpoint after step {before}")

    def forged(self, rank=1):
        """A sender without the secret, whose other fields are right."""
        return {**self.stolen, "rank": rank, "incarnation": self.chance.getrandbits(64)}

    def status(self):
        asked = subprocess.run([self.job.programs / "sluice", "status", "--json", "--coordinator", f"127.0.0.1:{self.job.ports[0]}",
                                *self.secrets.of("observer")], capture_output=True, text=True, timeout=60)
        if asked.returncode != 0:
            raise AssertionError(f"`sluice status`: {asked.stderr}")
        return json.loads(asked.stdout)
