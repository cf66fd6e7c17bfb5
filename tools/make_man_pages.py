#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages of the programs from their --help texts, as docs/flags.md is made.

usage: make_man_pages.py BIN VERSION OUT PROGRAM...
BIN is the folder with the programs, such as build/release/bin. Each page is OUT/PROGRAM.1; those of commands are sections of it.
"""
import pathlib
import re
import sys

from make_flags_page import commands

MANUAL = "Sluice's manual"
EXPLAIN = '.B "sluice explain"\ndescribes the keys of the job file.'


def roff(text):
    """The text as roff input: no hyphen becomes typographic, and no line is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace('"', "\\(dq")
    text = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", text)
    return re.sub(r"^\.", "\\\\&.", text, flags=re.M)


def sentence(text):
    return text if text.endswith(".") else text + "."


def entry(flag):
    """A flag or an argument with its meaning."""
    is_flag = flag.name.startswith("-")
    name = ", ".join(f"\\fB{roff(part)}\\fR" for part in flag.name.split(",")) if is_flag else f"\\fI{roff(flag.value or flag.name)}\\fR"
    value = f" \\fI{roff(flag.value)}\\fR" if flag.value and is_flag else ""
    notes = flag.notes + ([f"default: {flag.default}"] if flag.default else [])
    return [".TP", name + value, roff(sentence(flag.text + (f" ({'; '.join(notes)})" if notes else "")))]


def sections(help_text, is_program):
    """(heading, lines) of the parts that a program's page and a command's have in common."""
    if help_text.sections["Subcommands"]:
        rows = [[".TP", f"\\fB{roff(sub.name)}\\fR", roff(sentence(sub.text))] for sub in help_text.sections["Subcommands"]]
        yield "COMMANDS", [line for row in rows for line in row]
    flags_of_its_own = [flag for flag in help_text.flags() if is_program or flag.name != "-h,--help"]
    for heading, flags in (("ARGUMENTS", help_text.sections["Positionals"]), ("OPTIONS", flags_of_its_own)):
        if flags:
            yield heading, [line for flag in flags for line in entry(flag)]


def page(program, version, helps):
    """The page of a program; `helps` are (command, help) of the program and then of its commands."""
    _, own = helps[0]
    about = [line.strip() for line in own.about if line.strip() and not line.startswith("Usage: ")]
    usage = next(line for line in own.about if line.startswith("Usage: "))[len("Usage: "):]
    title = re.sub(r"^Sluice: ", "", about[0].rstrip("."))
    lines = [".\\\" Made by tools/make_man_pages.py from the program's --help.", f'.TH {program.upper()} 1 "" "Sluice {version}" "{MANUAL}"', ".SH NAME",
             f"{roff(program)} \\- {roff(title[0].lower() + title[1:])}", ".SH SYNOPSIS", f"\\fB{roff(program)}\\fR{roff(usage[len(program):])}"]
    if about[1:]:
        lines += [".SH DESCRIPTION", *map(roff, about[1:])]
    for heading, part in sections(own, True):
        lines += [f".SH {heading}", *part]
    after = "\n".join(own.after).strip("\n")
    for command, text in helps[1:]:
        called = [line for line in text.about if line.strip()]
        usage = next(line for line in called if line.startswith("Usage: "))[len("Usage: "):]
        lines += [f'.SH "{" ".join(command[1:]).upper()}"', f"\\fB{roff(usage)}\\fR", ".PP",
                  *[roff(sentence(line.strip())) for line in called if not line.startswith("Usage: ")]]
        for heading, part in sections(text, False):
            lines += [f".SS {heading.capitalize()}", *part]
        more = "\n".join(text.after).strip("\n")
        if more and more != after:
            lines += [".PP", *[roff(line.strip()) for line in more.split("\n")]]
    if after:
        lines += [".SH NOTES", ".nf", *[roff(line) for line in after.split("\n")], ".fi"]
    others = [other for other in ("sluice", "sluice-server", "sluice-worker", "sluice-relay") if other != program]
    lines += [".SH \"SEE ALSO\"", ", ".join(f"\\fB{roff(other)}\\fR(1)" for other in others), ".PP", EXPLAIN]
    return "\n".join(line for line in lines if line) + "\n"


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    folder, version, out, programs = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:]
    out.mkdir(parents=True, exist_ok=True)
    for program in programs:
        (out / f"{program}.1").write_text(page(program, version, list(commands(folder, [program]))))


if __name__ == "__main__":
    main()
