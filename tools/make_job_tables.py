#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of keys in docs/job-file.md from `sluice explain --json`, which describes the schema.

usage: make_job_tables.py BIN            BIN is the folder with the programs, such as build/release/bin
       make_job_tables.py BIN --check    writes nothing and exits with 1 if the page differs from the schema
A table stands between the lines `<!-- keys of SECTION -->` and `<!-- end of keys -->` of the page; SECTION is a path or `the job`.
"""
import difflib
import json
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/job-file.md"
TABLE = re.compile(r"<!-- keys of (.*?) -->\n(.*?)<!-- end of keys -->\n", re.S)


def table(keys):
    columns = [("key", lambda key: f"`{key['key'].rpartition('.')[2]}`"), ("meaning", lambda key: key["meaning"])]
    if any(key["taken_by"] for key in keys):
        columns.append(("taken by", lambda key: ", ".join(f"`{kind}`" for kind in key["taken_by"]) or "all"))
    columns.append(("default", lambda key: key["default"]))
    if any(key["range"] for key in keys):
        columns.append(("range", lambda key: key["range"]))
    lines = ["| " + " | ".join(title for title, _ in columns) + " |", "|" + "---|" * len(columns)]
    for key in keys:
        lines.append("| " + " | ".join(cell(key).replace("|", "\\|") for _, cell in columns) + " |")
    return "".join(re.sub(r" +\|", " |", line) + "\n" for line in lines)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sluice = pathlib.Path(sys.argv[1]) / "sluice"
    sections = json.loads(subprocess.run([sluice, "explain", "--json"], check=True, capture_output=True, text=True).stdout)
    sections["the job"] = sections.pop("")
    page = PAGE.read_text()
    shown = [match[1] for match in TABLE.finditer(page)]
    problems = [f"the schema does not describe {key['key']}" for keys in sections.values() for key in keys if not key["meaning"]]
    problems += [f"the page has a table for {section}, which is no section" for section in shown if section not in sections]
    # Lists of sections are described in words, and `baseline` repeats other sections.
    described = {key["key"] for keys in sections.values() for key in keys if key["list"]} | {"baseline", "baseline.optimizer", "baseline.lr_schedule"}
    problems += [f"the page has no table for {section}" for section in sections if section not in {*shown, *described}]
    if problems:
        sys.exit("\n".join(problems))
    wanted = TABLE.sub(lambda match: f"<!-- keys of {match[1]} -->\n{table(sections[match[1]])}<!-- end of keys -->\n", page)
    if sys.argv[2:] == ["--check"]:
        difference = "".join(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True), "docs/job-file.md", "the schema"))
        sys.exit(f"{difference}Run tools/make_job_tables.py." if difference else 0)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
