#!/usr/bin/env python3
"""Defaults, ranges and required keys in docs/job-file.md against the schema, proto/sluice/v1/job.proto.

usage: defaults_test.py ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
# Heading of the page, and the message that its table describes.
SECTIONS = {
    "Top-level keys": "JobSpec", "model": "ModelSpec", "data": "DataSpec", "optimizer": "OptimizerSpec", "lr_schedule": "LrScheduleSpec",
    "compression": "CompressionSpec", "control": "ControlSpec", "relays": "RelaysSpec", "checkpoint": "CheckpointSpec",
    "server": "ServerSpec", "metrics": "MetricsSpec",
}
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
BOUNDS = {"at least": "at_least", "at most": "at_most", "above": "above", "below": "below"}


def number(text):
    """A number of the page: 10^12, 2^32, 0.1s, 8MiB; or None."""
    match = re.fullmatch(r"(\d+)\^(\d+)|(-?[\d.]+(?:e-?\d+)?)(s|m|h|[KMGT]iB)?", text)
    if match is None:
        return None
    return float(match[1]) ** int(match[2]) if match[1] else float(match[3]) * UNITS[match[4] or ""]


def schema():
    """{message: {key: {option: value}}}; `known` and `only_for` are left out, as keys may have several."""
    text = re.sub(r"//.*", "", (ROOT / "proto/sluice/v1/job.proto").read_text())
    found = {}
    for message, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.M | re.S):
        fields = re.findall(r"(?:optional|repeated) [\w.]+ (\w+) = \d+\s*(?:\[(.*?)\])?;", body, re.S)
        found[message] = {
            key: {name: value.strip('"') for name, value in re.findall(r'\((\w+)\) = ("[^"]*"|[^,\]\s]+)', options)} for key, options in fields
        }
    return found


def tables():
    """(section, key, row) of the page; a row is {column: cell}."""
    text = (ROOT / "docs/job-file.md").read_text()
    for title, body in re.findall(r"^#{2,3} (.+?)\n(.*?)(?=^#{2,3} |\Z)", text, re.M | re.S):
        if title not in SECTIONS:
            continue
        columns = None
        for line in body.split("\n"):
            if not line.startswith("|"):
                columns = None
                continue
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if columns is None:
                columns = cells
            elif columns[0] == "key" and "default" in columns and not line.startswith("|---"):
                for key in re.findall(r"`(\w+)`", cells[0]):
                    yield title, key, dict(zip(columns, cells))


def bounds_of(cell):
    """The bounds that a cell of the column `range` states, by option."""
    found = {}
    between = re.match(r"(?:each )?(\S+) to (\S+?)(?:[,;]|$)", cell)
    if between and number(between[1]) is not None and number(between[2]) is not None:
        found["at_least"], found["at_most"] = number(between[1]), number(between[2])
    for words, option in BOUNDS.items():
        for value in re.findall(rf"\b{words} ([\d.^]+\w*)", cell):
            if number(value.rstrip(".")) is not None:
                found[option] = number(value.rstrip("."))
    return found


class Defaults(unittest.TestCase):
    def setUp(self):
        self.schema = schema()
        self.rows = list(tables())

    def test_all_are_found(self):
        self.assertEqual({section for section, _, _ in self.rows}, set(SECTIONS))
        self.assertGreater(len(self.rows), 90)

    def test_rows_are_keys(self):
        for section, key, _ in self.rows:
            with self.subTest(section=section, key=key):
                self.assertIn(key, self.schema[SECTIONS[section]])

    def test_defaults(self):
        for section, key, row in self.rows:
            options = self.schema[SECTIONS[section]].get(key, {})
            with self.subTest(section=section, key=key):
                cell = re.sub(r"[`']", "", row["default"])
                if "default_value" in options:
                    self.assertEqual(cell, options["default_value"].replace("'", ""))
                if "needed" in options:
                    self.assertTrue(cell.startswith("required"), f"the schema requires it, the page says {cell!r}")

    def test_ranges(self):
        compared = 0
        for section, key, row in self.rows:
            options = self.schema[SECTIONS[section]].get(key, {})
            for option, value in bounds_of(row.get("range", "")).items():
                with self.subTest(section=section, key=key, bound=option):
                    if option in options:
                        self.assertAlmostEqual(float(options[option]), value)
                        compared += 1
        self.assertGreater(compared, 80)


if __name__ == "__main__":
    unittest.main()
