#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what pip-audit found with the advisories that SECURITY.md names.

usage: advisories.py FOUND.json SECURITY.md
Exits with 0 if the page names every advisory by one of its identifiers, 1 if not, 3 if nothing was audited.
"""
import json
import pathlib
import sys


def unnamed(found, page):
    """Names of the advisories that the page does not have. None if no package was audited."""
    audited = [package for package in found["dependencies"] if "skip_reason" not in package]
    if not audited:
        return None
    advisories = [[advisory["id"], *advisory.get("aliases", [])] for package in audited for advisory in package["vulns"]]
    return [" = ".join(names) for names in advisories if not any(name in page for name in names)]


def self_test():
    def found(*advisories):
        return {"dependencies": [{"name": "grpcio", "vulns": [{"id": name, "aliases": other} for name, other in advisories]}]}
    assert unnamed(found(), "") == []
    assert unnamed(found(("GHSA-1", ["CVE-1"]), ("GHSA-2", [])), "CVE-1") == ["GHSA-2"]
    assert unnamed({"dependencies": [{"name": "grpcio", "skip_reason": "not found"}]}, "") is None


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    self_test()
    text = pathlib.Path(sys.argv[1]).read_text()
    missing = unnamed(json.loads(text), pathlib.Path(sys.argv[2]).read_text()) if text.strip() else None
    if missing is None:
        sys.exit(3)
    if missing:
        sys.exit(f"{sys.argv[2]} does not name: " + ", ".join(missing))
    print(f"{sys.argv[2]} names all advisories that were found")


if __name__ == "__main__":
    main()
