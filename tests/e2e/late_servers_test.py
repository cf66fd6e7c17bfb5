#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers start seconds before the servers, as on Kubernetes, and connect as soon as the servers are up, also through TLS. Each is a
separate process, because gRPC would poll all connections in a process that also has a server.

usage: late_servers_test.py FOLDER_OF_PROGRAMS [unittest arguments]
"""
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from processes import free_port

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "small.yaml")  # Two workers, two shards.
BIN = pathlib.Path()
LATE = 4     # In seconds.
LIMIT = 120  # In seconds after the servers' start. A start takes two or three; a failed start gives up after a minute.


def make_certificates(folder):
    """Makes certificates of one CA for 127.0.0.1 and returns a program's flags for them."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    (folder / "names").write_text("subjectAltName = IP:127.0.0.1\n")
    for command in (["req", "-x509", *key, "-days", "2", "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem"],
                    ["req", *key, "-subj", "/CN=test", "-keyout", "tls.key", "-out", "tls.csr"],
                    ["x509", "-req", "-in", "tls.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                     "-extfile", "names", "-out", "tls.pem"]):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    return [f"--tls-cert={folder}/tls.pem", f"--tls-key={folder}/tls.key", f"--tls-ca={folder}/ca.pem"]


class LateServers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(BIN / command[0]), "--job", JOB, *command[1:]], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train(self, flags):
        ports = [free_port(), free_port()]
        coordinator = f"127.0.0.1:{ports[0]}"
        processes = [self.start(f"worker-{rank}", "sluice-worker", "--rank", str(rank), "--coordinator", coordinator, *flags)
                     for rank in (0, 1)]
        time.sleep(LATE)
        processes += [self.start(f"shard-{shard}", "sluice-server", "--shard", str(shard), "--listen", f"127.0.0.1:{port}",
                                 "--coordinator", coordinator, "--http-listen", "off", *flags)
                      for shard, port in enumerate(ports)]
        for process in processes:
            try:
                self.assertEqual(process.wait(LIMIT), 0, self.logs())
            except subprocess.TimeoutExpired:
                self.fail(f"{process.args[0]} has not ended {LIMIT} s after the servers were started\n{self.logs()}")

    def logs(self):
        return "\n".join(f"{log.name}: {log.read_text()[-600:]}" for log in sorted(self.folder.glob("*.log")))

    def test_without_tls(self):
        self.train([])

    def test_through_tls(self):
        self.train(make_certificates(self.folder))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
