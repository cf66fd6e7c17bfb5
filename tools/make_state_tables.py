#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of states in docs/protocol.md from the coordinator's code: the comments of the enums and the lists of transitions.

usage: make_state_tables.py            writes them
       make_state_tables.py --check    writes nothing and exits with 1 if the page differs from the code
The tables stand between the lines `<!-- states of NAME -->` and `<!-- end of states -->` of the page; NAME is a key of SOURCES.
"""
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/protocol.md"
TABLES = re.compile(r"<!-- states of (.*?) -->\n.*?<!-- end of states -->\n", re.S)
# The header and source without their suffix, the prefix of the enums, and the title of the table.
SOURCES = {"ranks": ("server/coordinator/member", "Member", "state of a rank"),
           "shards": ("server/coordinator/shard_fleet", "Shard", "state of a shard")}


def meanings(header, enum):
    """Returns {value: comment} of an enum. A comment stands above its value or behind it."""
    body = re.search(rf"enum class {enum} {{\n(.*?)\n}};", header, re.S)
    found, above = {}, []
    for line in body[1].splitlines():
        value = re.fullmatch(r"\s*(k\w+),(?:\s*// (.*))?", line)
        if value:
            found[value[1]] = value[2] or " ".join(above)
            above = []
        else:
            above.append(line.strip().removeprefix("// "))
    return found


def names(source, enum):
    """Returns {value: text} of the enum's ToString."""
    return dict(re.findall(rf'case {enum}::(k\w+):\n\s*return "([^"]+)";', source))


def transitions(source, prefix):
    """Returns {state: {event: next state}}."""
    found = {}
    for state, event, after in re.findall(rf"\{{{prefix}State::(k\w+), {prefix}Event::(k\w+), {prefix}State::(k\w+)\}}", source):
        found.setdefault(state, {})[event] = after
    return found


def reactions(state, events, state_names, event_names):
    """Describes what each event does in the state, in the order of the events' declarations."""
    moves = [f"{event_names[event]} → `{state_names[events[event]]}`" for event in event_names if events.get(event, state) != state]
    same = [event_names[event] for event in event_names if events.get(event) == state]
    return "; ".join(moves + ([f"unchanged: {', '.join(same)}"] if same else []))


def table(titles, rows):
    lines = [f"| {' | '.join(cells)} |\n" for cells in (titles, *rows)]
    return "".join([lines[0], "|" + "---|" * len(titles) + "\n", *lines[1:]])


def tables(stem, prefix, title):
    header, source = (ROOT / f"{stem}.h").read_text(), (ROOT / f"{stem}.cc").read_text()
    states, events = meanings(header, f"{prefix}State"), meanings(header, f"{prefix}Event")
    state_names, event_names = names(source, f"{prefix}State"), names(source, f"{prefix}Event")
    found = transitions(source, prefix)
    for kind, values, shown in (("State", states, state_names), ("Event", events, event_names)):
        if values.keys() != shown.keys():
            sys.exit(f"{stem}: {prefix}{kind} and its ToString have different values")
        if not all(values.values()):
            sys.exit(f"{stem}: a value of {prefix}{kind} has no comment")
    if not found.keys() <= states.keys() or not {event for each in found.values() for event in each} <= events.keys():
        sys.exit(f"{stem}: a transition has an unknown state or event")
    return (table([title, "meaning", "events"],
                  [[f"`{state_names[state]}`", meaning, reactions(state, found.get(state, {}), state_names, event_names)]
                   for state, meaning in states.items()]) + "\n" +
            table(["event", "meaning"], [[event_names[event], meaning] for event, meaning in events.items()]))


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    page = PAGE.read_text()
    shown = [match[1] for match in TABLES.finditer(page)]
    if sorted(shown) != sorted(SOURCES):
        sys.exit(f"{PAGE} has tables of {shown}, not of {sorted(SOURCES)}")
    wanted = TABLES.sub(lambda match: f"<!-- states of {match[1]} -->\n{tables(*SOURCES[match[1]])}<!-- end of states -->\n", page)
    if sys.argv[1:] == ["--check"]:
        difference = "".join(difflib.unified_diff(page.splitlines(True), wanted.splitlines(True), "docs/protocol.md", "the code"))
        sys.exit(f"{difference}Run tools/make_state_tables.py." if difference else 0)
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
