#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the servers and workers of real jobs: every query of every dashboard returns data, metrics pass `promtool
check metrics`, and the alert for a lost worker fires and clears.

usage: prometheus_test.py FOLDER_OF_PROGRAMS ROOT [--panels FOLDER]     exits with 77 (skipped) if prometheus or promtool is missing
  --panels FOLDER   runs the jobs for a minute and draws every dashboard of each into FOLDER, as HTML
"""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import panels
from processes import free_port, wait_until
from prometheus_process import start_prometheus

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "survival.yaml")
BIN = pathlib.Path()
ROOT = pathlib.Path()
PANELS = None
DRAWN = 60  # In seconds.
LIMIT = 120  # In seconds, for anything. A hang fails instead of blocking.
ENDLESS = "steps=10000000"
LEASE = 15  # In seconds; longer than a process stalls on a busy machine.
JOBS = {
    "sync": ["checkpoint.interval=50", "control={policy: schedule, schedule: cyclic, start: 0.2, end: 0.05, steps: 400, stages: 2}"],
    "async": ["mode=async", "checkpoint.interval=50", "followers.every=1"],
    "local": ["mode=local_sgd", "local_steps=2", "workers=3", "guard.policy=skip", "merge_weights=tokens", "checkpoint.interval=50"],
}
WORKERS = {"sync": 2, "async": 2, "local": 3}


def fetch(url):
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return answer.read().decode()


def quick_rules(text):
    """The shipped rules with seconds in place of minutes. The test checks whether they fire, not when."""
    return re.sub(r"for: \d+m", "for: 2s", re.sub(r"\[\d+[mh]", "[10s", text))


def scrape_configuration(targets, rules):
    """The configuration that release 0.1 shipped, with this test's addresses, rules and a shorter interval. Users' old configurations must keep working."""
    text = (ROOT / "tests/compatibility/0.1/prometheus.yml").read_text()
    for old, new in ((r"scrape_interval: 5s", "scrape_interval: 1s\n  evaluation_interval: 1s"), (r"rule_files: \[.*\]", f"rule_files: [{rules}]"),
                     (r"targets: \[.*\]", f"targets: {json.dumps(targets)}")):
        text, count = re.subn(old, new, text)
        assert count == 1, f"{old} occurs {count} times in the configuration of 0.1"
    return text


class Job:
    """Two shards and some workers, each with a port for metrics."""

    def __init__(self, test, name, changes):
        self.name, self.folder = name, test.folder / name
        self.folder.mkdir()
        self.changes = [f"name={name}", ENDLESS, f"server.lease_timeout={LEASE}s", f"checkpoint.dir={self.folder}/checkpoints", *changes]
        self.grpc, self.http = [free_port() for _ in range(2)], [free_port() for _ in range(2 + WORKERS[name])]  # The workers' ports come last.
        self.processes = {}
        test.addCleanup(self.stop)
        for shard in range(2):
            self.start("server", shard, "--shard", str(shard), "--listen", f"127.0.0.1:{self.grpc[shard]}",
                       "--http-listen", f"127.0.0.1:{self.http[shard]}")
        for rank in range(WORKERS[name]):
            self.start_worker(rank)

    def start_worker(self, rank):
        self.start("worker", rank, "--rank", str(rank), "--threads", "1", "--http-listen", f"127.0.0.1:{self.http[2 + rank]}",
                   "--quality-interval", "10")

    def start(self, kind, number, *arguments):
        command = [str(BIN / f"sluice-{kind}"), "--job", JOB, "--coordinator", f"127.0.0.1:{self.grpc[0]}", *arguments]
        for change in self.changes:
            command += ["--set", change]
        with (self.folder / f"{kind}-{number}.log").open("a") as log:
            self.processes[kind, number] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def logs(self):
        return "".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))


class PrometheusTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start_prometheus(self, jobs):
        rules = self.folder / "rules.yaml"
        rules.write_text(quick_rules((ROOT / "helm/sluice/rules/sluice.yaml").read_text()))
        config = self.folder / "prometheus.yml"
        config.write_text(scrape_configuration([f"127.0.0.1:{port}" for job in jobs for port in job.http], rules))
        self.url = start_prometheus(self, self.folder, config)

    def query(self, expression):
        """Returns the current samples."""
        try:
            answer = json.loads(fetch(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []  # Not up yet.
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []  # Not up yet.
        return answer["data"]["result"]

    def firing(self, name):
        alerts = json.loads(fetch(f"{self.url}/api/v1/alerts"))["data"]["alerts"]
        return [alert for alert in alerts if alert["labels"]["alertname"] == name and alert["state"] == "firing"]

    def worker_lost(self, job):
        return next((alert for alert in self.firing("SluiceProcessLost")
                     if (alert["labels"]["training_job"], alert["labels"]["kind"]) == (job.name, "worker")), None)

    def test_dashboards_and_alerts(self):
        jobs = [Job(self, name, changes) for name, changes in JOBS.items()]
        self.start_prometheus(jobs)
        for job in jobs:
            try:
                wait_until(lambda: self.query(f'sluice_checkpoint_age_seconds{{training_job="{job.name}"}}'), "a checkpoint", LIMIT)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{job.logs()}") from None
        for job in jobs:
            for port in job.http:
                checked = subprocess.run(["promtool", "check", "metrics"], input=fetch(f"http://127.0.0.1:{port}/metrics"),
                                         capture_output=True, text=True)
                self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        self.check_panels(jobs)
        if PANELS:
            self.draw_panels(jobs)
        self.check_lost_worker(jobs[0])

    def draw_panels(self, jobs):
        time.sleep(DRAWN)
        end = time.time()
        for path in sorted((ROOT / "helm/sluice/dashboards").glob("*.json")):
            for job in jobs:
                def series_of(expression, name=job.name):
                    query = {"query": expression.replace("$training_job", name).replace("$__rate_interval", "10s"), "start": end - DRAWN, "end": end, "step": 1}
                    answer = json.loads(fetch(f"{self.url}/api/v1/query_range?" + urllib.parse.urlencode(query)))
                    return [(series["metric"], [(at, float(value)) for at, value in series["values"]]) for series in answer["data"]["result"]]
                (PANELS / f"{path.stem}-{job.name}.html").write_text(panels.page(json.loads(path.read_text()), job.name, series_of))

    def check_panels(self, jobs):
        count = 0
        for path in sorted((ROOT / "helm/sluice/dashboards").glob("*.json")):
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel["targets"]:
                    expressions = [target["expr"].replace("$training_job", job.name).replace("$__rate_interval", "10s") for job in jobs]
                    count += 1
                    wait_until(lambda: any(self.query(expression) for expression in expressions),
                               f"data for {path.name}, {panel['title']}: {target['expr']}", LIMIT)
        print(f"{count} queries returned data")
        for job in jobs:
            wait_until(lambda: not self.firing("SluiceProcessLost"), "nobody lost", LIMIT)

    def check_lost_worker(self, job):
        job.processes["worker", 1].send_signal(signal.SIGSTOP)
        alert = wait_until(lambda: self.worker_lost(job), "an alert for a stopped worker", LIMIT)
        print(alert["annotations"]["summary"])
        job.processes["worker", 1].kill()
        job.processes["worker", 1].wait()
        job.start_worker(1)
        wait_until(lambda: not self.firing("SluiceProcessLost"), "the alert cleared", LIMIT)


if __name__ == "__main__":
    BIN, ROOT = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
    if "--panels" in sys.argv:
        at = sys.argv.index("--panels")
        PANELS = pathlib.Path(sys.argv[at + 1]).resolve()
        PANELS.mkdir(parents=True, exist_ok=True)
        del sys.argv[at:at + 2]
    missing = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    if missing:
        print(f"{' and '.join(missing)} missing (Debian: prometheus): skipped")
        sys.exit(77)
    unittest.main()
