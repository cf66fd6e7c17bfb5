#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every function of Sluice that tests/tsan.supp names exists: an entry for a function that was renamed or moved suppresses
nothing, and a sanitizer test then fails by chance.

usage: suppressions_test.py ROOT
"""
import pathlib
import re
import sys

ENTRY = re.compile(r"^[a-z_]+:\^?(sluice::(?:\w+::)*)(\w+)$", re.MULTILINE)


def missing(entries, sources):
    """The names in the text `entries` that none of the texts `sources` defines in that namespace."""
    for scope, name in ENTRY.findall(entries):
        namespace = re.compile(rf"^namespace {scope[:-2]} {{$", re.MULTILINE)
        definition = re.compile(rf"^\w.*\b{name}\(.*(\{{|,)$", re.MULTILINE)
        if not any(namespace.search(text) and definition.search(text) for text in sources):
            yield f"{scope}{name}"


def self_test():
    source = "namespace sluice::net {\nAccepted Accept(int listener) {\n}\n}\n"
    assert list(missing("race:sluice::net::Accept\nrace:libgrpc\n", [source])) == []
    assert list(missing("race:sluice::Accept\n", [source])) == ["sluice::Accept"], "the function is in another namespace"
    assert list(missing("race:^sluice::net::Accepts\n", [source])) == ["sluice::net::Accepts"], "the function has another name"


def main():
    root = pathlib.Path(sys.argv[1])
    self_test()
    entries = (root / "tests/tsan.supp").read_text()
    folders = ("base", "compress", "protocol", "job", "net", "app", "server", "worker", "relay", "cli")
    sources = [path.read_text() for folder in folders for path in (root / folder).rglob("*.cc")]
    names = list(missing(entries, sources))
    for name in names:
        print(f"tests/tsan.supp: no source defines {name}: correct the entry, or remove it")
    print(f"{len(ENTRY.findall(entries))} names of functions checked, {len(names)} unknown")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
