#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults are reported: a stalled worker, a cut link, a checkpoint folder that cannot be written. Each appears on /status.json and
disappears when it is over. If Prometheus is installed, its alert fires and clears too.

usage: faults_test.py FOLDER_OF_PROGRAMS ROOT
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import urllib.request

from paced_proxy import PacedProxy
from processes import free_port, wait_until

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path()
ROOT = pathlib.Path()
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
CUT = 20e6 / 8  # Bytes per second of a cut link. The rate is so low that the link is the bottleneck even on a busy machine.
NOBODY = 65534


def fetch(url):
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return json.loads(answer.read())


def quick_rules(text):
    """The shipped rules with seconds in place of minutes."""
    return re.sub(r"for: \d+m", "for: 5s", re.sub(r"\[\d+[mh]", "[10s", text))


class FaultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir()
        if os.geteuid() == 0:
            os.chown(self.checkpoints, NOBODY, NOBODY)
        for source in (BIN / "sluice-server", BIN / "synthetic_worker", HERE / "survival.yaml"):
            shutil.copy(source, self.folder)  # To a folder that every user may read.
        self.processes = {}
        self.addCleanup(self.stop)
        self.link = PacedProxy()
        self.addCleanup(self.link.close)
        # gRPC port of the server; HTTP ports of the server and the workers.
        self.grpc, self.http = free_port(), [free_port() for _ in range(3)]
        self.url = None

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, name, program, *arguments, proxy=None):
        command = [str(self.folder / program), "--job", str(self.folder / "survival.yaml"), *arguments]
        for change in ("name=faults", "shards=1", "steps=10000000", "server.lease_timeout=3600s", "compression.uplink=none", "compression.downlink=none",
                       f"checkpoint.dir={self.checkpoints}", "checkpoint.interval=20"):
            command += ["--set", change]
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        if proxy:
            environment["grpc_proxy"] = proxy
        # The process that cannot write its folder must not run as root, because root can write any folder.
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        with (self.folder / f"{name}.log").open("w") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, **user)

    def start_job(self):
        self.start("server", "sluice-server", "--listen", f"127.0.0.1:{self.grpc}", "--http-listen", f"127.0.0.1:{self.http[0]}")
        for rank in range(2):
            self.start(f"worker-{rank}", "synthetic_worker", "--coordinator", f"127.0.0.1:{self.grpc}", "--rank", str(rank),
                       "--parameters", "500000", "--compute-ms", "100", "--steps", "10000000", "--http-listen",
                       f"127.0.0.1:{self.http[1 + rank]}", proxy=self.link.url if rank == 1 else None)

    def start_prometheus(self):
        rules = self.folder / "rules.yaml"
        rules.write_text(quick_rules((ROOT / "helm/sluice/rules/sluice.yaml").read_text()))
        config = self.folder / "prometheus.json"  # JSON is YAML.
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "sluice", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in self.http]}]}]}))
        self.url = f"http://127.0.0.1:{free_port()}"
        with (self.folder / "prometheus.log").open("w") as log:
            self.processes["prometheus"] = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                 f"--web.listen-address={self.url.removeprefix('http://')}"], stdout=log, stderr=subprocess.STDOUT)

    def warnings(self):
        try:
            return [warning["text"] for warning in fetch(f"http://127.0.0.1:{self.http[0]}/status.json")["warnings"]]
        except OSError:
            return []  # Not up yet.

    def warned(self, words):
        return next((text for text in self.warnings() if words in text), None)

    def firing(self, name):
        try:
            alerts = fetch(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        except OSError:
            return []  # Not up yet.
        return [alert for alert in alerts if alert["labels"]["alertname"] == name and alert["state"] == "firing"]

    def check(self, words, alert, begin, end):
        wait_until(lambda: self.warned(words) is None, f"no '{words}' before there is a reason", LIMIT)
        begin()
        print(wait_until(lambda: self.warned(words), f"a warning with '{words}'; there are {self.warnings()}", LIMIT))
        if self.url and alert:
            print(wait_until(lambda: self.firing(alert), alert, LIMIT)[0]["annotations"]["summary"])
        end()
        wait_until(lambda: self.warned(words) is None, f"'{words}' gone", LIMIT)
        if self.url and alert:
            wait_until(lambda: not self.firing(alert), f"{alert} gone", LIMIT)

    def test_faults(self):
        self.start_job()
        if shutil.which("prometheus"):
            self.start_prometheus()
        status = f"http://127.0.0.1:{self.http[0]}/status.json"
        try:
            wait_until(lambda: self.processes and self.checkpoint_of(status), "a checkpoint", LIMIT)
        except AssertionError as error:
            raise AssertionError("".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in self.folder.glob("*.log"))) from error
        pause = self.processes["worker-1"].send_signal
        self.check("has not reported", None, lambda: pause(signal.SIGSTOP), lambda: pause(signal.SIGCONT))
        self.check("worker 1 waits on its link", "SluiceWaitsOnLink", lambda: setattr(self.link, "bytes_per_second", CUT),
                   lambda: setattr(self.link, "bytes_per_second", None))
        self.check("the checkpoint after step", "SluiceCheckpointGivenUp", lambda: self.checkpoints.chmod(0o555),
                   lambda: self.checkpoints.chmod(0o755))
        for name, process in self.processes.items():
            self.assertIsNone(process.poll(), f"{name} still runs")

    @staticmethod
    def checkpoint_of(status):
        try:
            return fetch(status)["checkpoint"]["step"] > 0
        except OSError:
            return False  # Not up yet.


if __name__ == "__main__":
    BIN, ROOT = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main()
