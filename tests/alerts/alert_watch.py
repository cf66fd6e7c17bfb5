# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes a job and evaluates the shipped alert rules, FASTER times as fast as in production."""
import json
import pathlib
import re
import urllib.parse
import urllib.request

from processes import wait_until
from prometheus_process import start_prometheus

ROOT = pathlib.Path(__file__).resolve().parents[2]
FASTER = 60  # So that a minute of a rule takes a second.
SCRAPE_MS = 500  # 30 s in production. The chart's 15 s would make a busy machine miss scrapes.
SECONDS = {"s": 1, "m": 60, "h": 3600}


def shortened(rules):
    """Divides each duration of the rules by FASTER: `for`, windows, offsets, and the limits of ages in seconds. Nothing else changes."""
    def seconds(match):
        whole, rest = divmod(int(match[2]) * SECONDS[match[3]], FASTER)
        assert rest == 0, f"{match[0]} is not a multiple of {FASTER} s"
        return f"{match[1]}{whole}s"
    rules = re.sub(r"(for: |\[|offset )(\d+)([smh])\b", seconds, rules)
    return re.sub(r"(_age_seconds > )(\d+)", lambda match: f"{match[1]}{int(match[2]) // FASTER}", rules)


class AlertWatch:
    def __init__(self, test, job, limit):
        self.job, self.limit = job, limit
        text = (ROOT / "helm/sluice/rules/sluice.yaml").read_text()
        rules = job.folder / "rules.yaml"
        rules.write_text(shortened(text))
        self.critical = set(re.findall(r"- alert: (\w+)\n(?:(?!- alert)[\s\S])*?severity: critical", text))
        interval = f"{SCRAPE_MS}ms"
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "sluice", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in job.http.values()]}]}]}
        path = job.folder / "prometheus.json"  # JSON is YAML.
        path.write_text(json.dumps(configuration))
        self.url = start_prometheus(test, job.folder, path)

    def ask(self, path, **query):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=self.limit) as answer:
                return json.loads(answer.read())["data"]
        except OSError:
            return {}  # Not up yet.

    def query(self, expression):
        """Returns the current samples as [(labels, value)]."""
        return [(sample["metric"], float(sample["value"][1])) for sample in self.ask("query", query=expression).get("result", [])]

    def alerts(self, *states):
        """Returns the alerts in these states, by name, with the text that a person gets."""
        return {alert["labels"]["alertname"]: alert["annotations"]["summary"]
                for alert in self.ask("alerts").get("alerts", []) if alert["state"] in states}

    def firing(self):
        return self.alerts("firing")

    def wait_until_scraped(self):
        """Waits until every process of the job is scraped: an alert that never had data would be silent without reason."""
        self.job.wait_until(lambda: len(self.query("up == 1")) == len(self.job.http), "Prometheus scrapes every process")

    def wait_until_fires(self, alert):
        self.job.wait_until(lambda: alert in self.firing(), f"{alert} fires", self.limit)
        return self.firing().get(alert, "")

    def wait_until_resolved(self, alert):
        """Waits until the alert is neither firing nor about to fire while every process of the job is scraped."""
        self.wait_until_scraped()
        wait_until(lambda: self.ask("alerts") and alert not in self.alerts("firing", "pending"), f"{alert} is over", self.limit)
