#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/flags.md from the --help texts of the programs.

usage: make_flags_page.py BIN            BIN is the folder with the programs, such as build/release/bin
       make_flags_page.py BIN --check    writes nothing and exits with 1 if the page differs from the --help texts
"""
import difflib
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/flags.md"
PROGRAMS = ("sluice", "sluice-server", "sluice-worker", "sluice-relay")
HEAD = """# Flags

`tools/make_flags_page.py` writes this page from the `--help` texts of the programs; a test compares them. Do not edit it by hand.

A flag means the same in every program. [Several machines](multi-machine.md) and [security](security.md) explain how the flags work together.
[Upgrading](upgrading.md#flags) lists old names.
"""
NAME_WIDTH = 30  # Column at which a description begins.
VALUE = re.compile(r"(?P<name>-?[\w,-]+)(\{false\})?( (?P<value>(KEY=VALUE|[^\s:={]+(:PORT)?)))?"
                   r"(:\{(?P<words>[^}]*)\})?(:(INT|FLOAT) in \[(?P<least>\S+) - (?P<most>[^]]+)\])?(=(?P<default>\S+))?"
                   r"(?P<repeats> \.\.\.)?(?P<required> REQUIRED)?")
SECTION = re.compile(r"^(Positionals|Options|Subcommands):$")


class Flag:
    """One line of a help text: names, value, default and description."""

    def __init__(self, names, text):
        match = VALUE.fullmatch(re.sub(r" (Excludes|Needs):.*$", "", names.strip()))
        self.name, self.value = match["name"], match["value"] or ""
        self.default, self.text = match["default"] or "", text
        self.notes = []
        if match["words"]:
            self.notes.append(match["words"].replace(",", ", "))
        if match["least"]:
            self.notes.append(f"{match['least']} to {match['most']}")
        if match["required"]:
            self.notes.append("required")
        if match["repeats"] and "may be repeated" not in text:
            self.notes.append("several values")

    def row(self):
        is_flag = self.name.startswith("-")
        name = f"`{self.name if is_flag else self.value or self.name}`"
        value = f"`{self.value.replace('|', '` or `')}`" if self.value and is_flag else ""
        default = f"`{self.default}`" if self.default else ""
        text = self.text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"| {name} | {value} | {default} | {text}{notes} |"


class Help:
    """A help text, taken apart."""

    def __init__(self, text):
        self.sections = {"Positionals": [], "Options": [], "Subcommands": []}
        self.about, self.after = [], []
        section = None
        lines = text.rstrip().split("\n")
        for at, line in enumerate(lines):
            begins = SECTION.match(line)
            if begins:
                section = self.sections[begins.group(1)]
            elif section is None:
                self.about.append(line)
            elif re.match(r"  \S", line) and not self.after:
                below = lines[at + 1] if at + 1 < len(lines) else ""
                # A description that has no place beside the names stands below them.
                if below.startswith(" " * NAME_WIDTH):
                    section.append(Flag(line, below.strip()))
                else:
                    section.append(Flag(line[:NAME_WIDTH], line[NAME_WIDTH:].strip()))
            elif line.startswith(" " * NAME_WIDTH) and not self.after:
                continue
            elif line.strip() or self.after:
                self.after.append(line)

    def flags(self):
        return [flag for flag in self.sections["Options"] if flag.name.startswith("-")]


def help_of(folder, command):
    """The help of a program, or of one of its commands."""
    done = subprocess.run([folder / command[0], *command[1:], "--help"], capture_output=True, text=True, check=True)
    return Help(done.stdout)


def commands(folder, programs=PROGRAMS):
    """(command, help) of each program and, after it, of each of its commands."""
    waiting = [(program,) for program in programs]
    while waiting:
        command = waiting.pop(0)
        text = help_of(folder, command)
        yield command, text
        waiting = [command + (sub.name,) for sub in text.sections["Subcommands"]] + waiting


def table(head, flags):
    return [f"| {head} | value | default | meaning |", "|---|---|---|---|", *(flag.row() for flag in flags), ""]


def page(folder):
    lines, said = [HEAD], set()
    for command, text in commands(folder):
        lines += ["#" * min(len(command) + 1, 3) + " " + " ".join(command), ""]
        about = [line for line in text.about if line.strip() and not line.startswith("Usage: ")]
        lines += [line.rstrip(".") + "." for line in about] + [""]
        if text.sections["Subcommands"]:
            lines += [f"- `{sub.name}`: {sub.text}" for sub in text.sections["Subcommands"]] + [""]
        if text.sections["Positionals"]:
            lines += table("argument", text.sections["Positionals"])
        lines += table("flag", [flag for flag in text.flags() if flag.name != "-h,--help"]) if len(text.flags()) > 1 else []
        after = "\n".join(text.after).strip("\n")
        if after and after not in said:
            said.add(after)
            lines += ["```text", after, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def main():
    folder, check = pathlib.Path(sys.argv[1]).resolve(), "--check" in sys.argv[2:]
    new = page(folder)
    if not check:
        PAGE.write_text(new)
        return 0
    old = PAGE.read_text()
    if old == new:
        return 0
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "docs/flags.md", "the programs' --help"))
    print(f"docs/flags.md differs from the --help texts of the programs: run tools/make_flags_page.py {sys.argv[1]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
