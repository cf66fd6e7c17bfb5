#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of metrics in docs/metrics.md: the page has the order, and the code has the type and the help text of each metric.

usage: make_metrics_tables.py            writes them
       make_metrics_tables.py --check    writes nothing and exits with 1 if the page differs from the code
"""
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/metrics.md"
STRING = r'"(?:[^"\\]|\\.)*"'
METRIC = re.compile(rf'(Gauge|Counter|Histogram|count)\(\s*"(sluice_[a-z_]+)",\s*({STRING}(?:\s*{STRING})*)')
ROW = re.compile(r"^\| `(sluice_[a-z_]+)` \|.*$", re.M)


def in_code():
    """Returns {name: (type, help text)}."""
    found = {}
    for folder in ("server", "worker"):
        for path in sorted((ROOT / folder).rglob("*.cc")):
            for kind, name, literals in METRIC.findall(path.read_text()):
                text = "".join(literal[1:-1] for literal in re.findall(STRING, literals)).replace('\\"', '"')
                found[name] = ("counter" if kind == "count" else kind.lower(), text)
    return found


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    metrics = in_code()
    page = PAGE.read_text()
    shown = [match[1] for match in ROW.finditer(page)]
    problems = [f"the code has no metric {name}" for name in shown if name not in metrics]
    problems += [f"the page has no row for {name}" for name in metrics if shown.count(name) != 1]
    if problems:
        sys.exit("\n".join(problems))
    wanted = ROW.sub(lambda match: f"| `{match[1]}` | {' | '.join(cell.replace('|', chr(92) + '|') for cell in metrics[match[1]])} |", page)
    if sys.argv[1:] == ["--check"]:
        difference = "".join(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True), "docs/metrics.md", "the code"))
        sys.exit(f"{difference}Run tools/make_metrics_tables.py." if difference else 0)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
