#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers, who can open TCP connections and have neither token nor certificate, attack the ports of a running job. Afterwards the job
has the result of an undisturbed one, its servers have grown by less than 64 MB, and every port answers.

usage: hostile_test.py FOLDER_OF_PROGRAMS VERSION_OF_GRPC [ATTACK...]     all attacks if none is named
"""
import contextlib
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
import threading
import unittest
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import grpc_attacks  # noqa: E402
import http_attacks  # noqa: E402
from faulty_job import FaultyJob  # noqa: E402
from late_servers_test import make_certificates  # noqa: E402
from processes import SlowedDown, free_port  # noqa: E402

PROGRAMS = pathlib.Path()
GRPC = (0, 0, 0)
ATTACKS = []
GROWTH = 64  # In MB.
STACK = 2 << 20  # Size of a thread's stack, as glibc makes it if `ulimit -s` is unlimited.
SLOW = 100  # Slowdown factor: the job must not end before the attacks.
SETTINGS = ("server.lease_timeout=60s", "steps=600")
DESCRIPTORS = 1024  # The usual limit.


def resident_mb(pid):
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0)


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def speaks_http2(port):
    """Returns whether the settings of a gRPC server arrive."""
    settings = b"\0\0\0\4\0\0\0\0\0"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
            head = b""
            while len(head) < 9 and (piece := client.recv(9 - len(head))):
                head += piece
    except OSError:
        return False
    return len(head) == 9 and head[3] == 4


class Growth:
    """Returns the largest growth of the processes in MB."""

    def __init__(self, pids):
        self.first = {pid: resident_mb(pid) for pid in pids}
        self.most = dict.fromkeys(pids, 0)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.02):
            for pid, first in self.first.items():
                self.most[pid] = max(self.most[pid], resident_mb(pid) - first)

    def end(self):
        self.over.set()
        self.thread.join()
        return max(self.most.values())


class Target:
    """A job under attack."""

    def __init__(self, test):
        self.job = FaultyJob(test, PROGRAMS, *SETTINGS)
        self.descriptors, self.grpc_version = DESCRIPTORS, GRPC
        self.token = "0123456789abcdef" * 2
        token_file = self.job.folder / "token"
        token_file.write_text(self.token)
        token_file.chmod(0o600)
        self.secret = ("--token-file", token_file)
        self.page_port, self.health_port, self.worker_port = (free_port() for _ in range(3))
        self.http_ports = (self.page_port, self.health_port, self.worker_port)
        flags = ("--http-listen", f"127.0.0.1:{self.page_port}", "--health-listen", f"127.0.0.1:{self.health_port}")
        addresses = [f"127.0.0.1:{port}" for port in self.job.ports]
        with self.small_stacks():
            self.job.start("shard-0", "sluice-server", "--shard", 0, "--listen", addresses[0], *flags, *self.secret, before=limit_descriptors)
            self.job.start("shard-1", "sluice-server", "--shard", 1, "--listen", addresses[1], "--http-listen", "off", "--coordinator",
                           addresses[0], *self.secret, before=limit_descriptors)
            self.job.worker(0, "--threads", 1, "--http-listen", f"127.0.0.1:{self.worker_port}", *self.secret, before=limit_descriptors)
            self.job.worker(1, "--threads", 1, *self.secret, before=limit_descriptors)
        self.servers = [self.job.running[f"shard-{shard}"].pid for shard in range(2)]

    @contextlib.contextmanager
    def small_stacks(self):
        before = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_STACK, before)

    def resident_mb(self, shard):
        return resident_mb(self.servers[shard])

    def expect_grpc(self, when):
        for shard, port in enumerate(self.job.ports):
            if not speaks_http2(port):
                raise AssertionError(f"the gRPC port of shard {shard} does not answer {when}")
        asked = subprocess.run([PROGRAMS / "sluice", "status", "--coordinator", f"127.0.0.1:{self.job.ports[0]}", *self.secret],
                               capture_output=True, text=True, timeout=60)
        if asked.returncode != 0:
            raise AssertionError(f"`sluice status` {when}: {asked.stderr}")

    def expect_all_ports(self, when):
        for port in self.http_ports:
            if not http_attacks.is_answered(port):
                raise AssertionError(f"HTTP port {port} does not answer {when}")
        self.expect_grpc(when)

    def expect_all_run(self, when):
        for name, process in self.job.running.items():
            if process.poll() is not None:
                raise AssertionError(f"{name} ended {when} with status {process.returncode}\n{self.job.logs()}")


class HostileTest(unittest.TestCase):
    def end_of(self, job):
        """Returns the final parameters of both workers."""
        names = [*job.running]
        codes = job.wait_until_ended()
        self.assertEqual(codes, dict.fromkeys(names, 0), job.logs())
        hashes = {job.report(f"worker-{rank}")["parameters_sha256"] for rank in range(2)}
        self.assertEqual(len(hashes), 1)
        return hashes.pop()

    def undisturbed(self):
        job = FaultyJob(self, PROGRAMS, *SETTINGS)
        for shard in range(2):
            job.server(shard)
        for rank in range(2):
            job.worker(rank, "--threads", 1)
        return self.end_of(job)

    def test_strangers(self):
        expected = self.undisturbed()
        target = Target(self)
        job = target.job
        job.wait_until(lambda: http_attacks.is_answered(target.health_port, "/readyz"), "the job has started")
        job.wait_until(lambda: http_attacks.is_answered(target.worker_port, "/readyz"), "worker 0 has joined")
        target.expect_all_ports("before the attacks")
        with SlowedDown(job.running["worker-1"].pid, SLOW):
            for attack in ATTACKS:
                with self.subTest(attack.__name__):
                    growth = Growth(target.servers)
                    try:
                        attack(target)
                    finally:
                        most = growth.end()
                        print(f"{attack.__name__}: a server grew by {most:.1f} MB", flush=True)
                    target.expect_all_run(f"after {attack.__name__}")
                    target.expect_all_ports(f"after {attack.__name__}")
                    if not grpc_attacks.is_expected_to_fail(attack, target):
                        self.assertLess(most, GROWTH, "a server's memory grew by too many MB")
        self.assertEqual(self.end_of(job), expected)


class MutualTlsTest(unittest.TestCase):
    def test_idle_strangers_do_not_silence_a_port_with_mutual_tls(self):
        job = FaultyJob(self, PROGRAMS)
        certificates = make_certificates(job.folder)
        job.server(0, *certificates, before=limit_descriptors)
        command = [PROGRAMS / "sluice", "status", "--coordinator", f"127.0.0.1:{job.ports[0]}", *certificates]

        def is_answered():
            return subprocess.run(command, capture_output=True, text=True, timeout=60).returncode == 0

        job.wait_until(is_answered, "the server answers")
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # A TLS hello, cut off.
        grpc_attacks.flood(job.ports[0], DESCRIPTORS + 100, (b"", hello, grpc_attacks.HELLO),
                           lambda: self.assertTrue(is_answered(), "the server must answer in spite of idle connections"))
        self.assertTrue(is_answered())


    def test_both_ports_refuse_old_versions_of_tls_and_grpc_refuses_clients_without_a_certificate(self):
        job, page = FaultyJob(self, PROGRAMS), free_port()
        certificates = make_certificates(job.folder)
        files = dict(flag.split("=", 1) for flag in certificates)
        job.start("shard-0", "sluice-server", "--shard", 0, "--listen", f"127.0.0.1:{job.ports[0]}", "--http-listen", f"127.0.0.1:{page}",
                  "--http-tls", *certificates)

        def shakes_hands(port, version, own=True):
            context = ssl.create_default_context(cafile=files["--tls-ca"])
            context.check_hostname = False
            context.set_ciphers("DEFAULT@SECLEVEL=0")  # Otherwise the client itself refuses old versions.
            context.set_alpn_protocols(["h2"] if port != page else ["http/1.1"])
            context.minimum_version = context.maximum_version = version
            if own:
                context.load_cert_chain(files["--tls-cert"], files["--tls-key"])
            try:
                with grpc_attacks.dial(port) as client, context.wrap_socket(client) as secure:
                    secure.sendall(grpc_attacks.HELLO if port != page else http_attacks.get("/livez"))
                    return bool(secure.recv(1))  # In TLS 1.3, a server refuses the certificate after the handshake.
            except OSError:
                return False

        job.wait_until(lambda: shakes_hands(job.ports[0], ssl.TLSVersion.TLSv1_2), "the server answers")
        for port in (job.ports[0], page):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of old versions.
                versions = {version: shakes_hands(port, version) for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1,
                                                                                ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
            self.assertEqual([*versions.values()], [False, False, True, True], f"port {port}")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            self.assertFalse(shakes_hands(job.ports[0], version, own=False), "a client without a certificate gets an answer")


class DescriptorsTest(unittest.TestCase):
    """All programs raise their limit of descriptors to its maximum, and a job that needs more is refused."""

    def start(self, soft, hard, *settings):
        job = FaultyJob(self, PROGRAMS, *settings)
        before = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))  # noqa: E731
        return job, job.server(0, before=before), job.worker(0, "--threads", 1, before=before)

    def test_the_soft_limit_is_raised(self):
        job, server, worker = self.start(300, 4000)
        for process in (server, worker):
            job.wait_until(lambda: resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4000, 4000), "the limit is raised")

    def test_a_job_that_does_not_fit_is_refused(self):
        job, server, _ = self.start(64, 64, "workers=300")
        job.wait_until_ended("shard-0")
        self.assertEqual(server.returncode, 1)
        said = job.log("shard-0").splitlines()
        self.assertEqual(len(said), 1, said)
        for text in ("needs 1085 file descriptors", "workers: 300 with 3 connections each", "may have only 64", "ulimit -Hn", "LimitNOFILE="):
            self.assertIn(text, said[0])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
    GRPC = tuple(map(int, sys.argv[2].split(".")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536, hard))
    every = (*grpc_attacks.ALL, *http_attacks.ALL)
    known = {attack.__name__: attack for attack in every}
    ATTACKS = [known[name] for name in sys.argv[3:]] or list(every)
    unittest.main(argv=sys.argv[:1])
