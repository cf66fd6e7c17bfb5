#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metric names in code, docs/metrics.md, dashboards and alerts must agree, and each alert must have its entry in docs/operations.md.

usage: names_test.py ROOT
"""
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
NAME = r"sluice_[a-z_]+"
SUFFIXES = ("_bucket", "_sum", "_count")


def in_code():
    """Returns {name: whether it is a histogram}."""
    names = {}
    for path in sorted((ROOT / "server").rglob("*.cc")) + sorted((ROOT / "worker").rglob("*.cc")):
        for kind, name in re.findall(rf'(Gauge|Counter|Histogram|count)\(\s*"({NAME})"', path.read_text()):
            names[name] = kind == "Histogram"
    return names


def used(text, known):
    """Returns the names in queries. Names of a histogram's parts count as the histogram's."""
    found = set()
    for name in re.findall(rf"\b{NAME}\b", text):
        whole = next((name.removesuffix(suffix) for suffix in SUFFIXES if known.get(name.removesuffix(suffix)) and name.endswith(suffix)), name)
        found.add(whole)
    return found


def queries():
    for path in sorted((ROOT / "helm/sluice/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}, {panel['title']}", target["expr"]


class Names(unittest.TestCase):
    def setUp(self):
        self.code = in_code()
        self.rules = (ROOT / "helm/sluice/rules/sluice.yaml").read_text()

    def test_some_are_found(self):
        self.assertGreater(len(self.code), 20)
        self.assertTrue(self.code["sluice_aggregation_wait_seconds"])
        self.assertFalse(self.code["sluice_step"])

    def test_documented_are_those_of_the_code(self):
        rows = re.findall(rf"^\| `({NAME})` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.M)
        self.assertEqual(sorted(name for name, _ in rows), sorted(self.code))
        for name, kind in rows:
            self.assertEqual(kind == "histogram", self.code[name], name)
            self.assertEqual(kind == "counter", name.endswith("_total"), name)

    def test_events_of_logs_are_documented(self):
        code = set()
        for layer in ("server", "worker", "relay"):
            for path in (ROOT / layer).rglob("*.cc"):
                code.update(re.findall(r'\.event = "(\w+)"', path.read_text()))
        logs = (ROOT / "docs/operations.md").read_text().split("\n## Logs\n")[1]
        documented = [name for cell in re.findall(r"^\| (`[^|]*) \|", logs, re.M) for name in re.findall(r"`(\w+)`", cell)]
        self.assertEqual(sorted(documented), sorted(code))

    def test_text_of_documents_names_what_there_is(self):
        renamed = set(re.findall(rf"^\| `({NAME})` \|", (ROOT / "docs/upgrading.md").read_text(), re.M))
        self.assertEqual(renamed & set(self.code), set())
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            old = renamed if path.name == "upgrading.md" else set()
            unknown = {name for name in re.findall(rf"`({NAME})`", path.read_text())} - set(self.code) - old
            self.assertEqual(unknown, set(), path.name)

    def test_dashboards_show_every_metric_and_no_other(self):
        shown = set()
        for where, query in queries():
            names = used(query, self.code)
            self.assertEqual(names - set(self.code), set(), where)
            shown |= names
        self.assertEqual(set(self.code) - shown, set())

    def test_alerts_ask_for_what_there_is(self):
        expressions = re.findall(r"expr: (.*?)\n {8}\w+:", self.rules, re.S)
        self.assertEqual(len(expressions), self.rules.count("- alert:"))
        for expression in expressions:
            self.assertEqual(used(expression, self.code) - set(self.code), set(), expression)

    def test_each_alert_has_its_entry(self):
        alerts = re.findall(r"- alert: (\w+)", self.rules)
        entries = re.findall(r"^## (Sluice\w+)", (ROOT / "docs/operations.md").read_text(), re.M)
        self.assertEqual(alerts, entries)
        self.assertEqual([alert.lower() for alert in alerts], re.findall(r"runbook: docs/operations.md#(\w+)", self.rules))


if __name__ == "__main__":
    unittest.main()
