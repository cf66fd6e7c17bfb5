#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages render without warnings, and each names all flags of its program and of the program's commands.

usage: man_pages_test.py BIN PAGES PROGRAM...
"""
import pathlib
import re
import subprocess
import sys
import unittest

PROGRAMS = sys.argv[3:]
PAGES = pathlib.Path(sys.argv[2])
BIN = pathlib.Path(sys.argv[1])
del sys.argv[1:]


def help_of(*command):
    return subprocess.run([BIN / command[0], *command[1:], "--help"], check=True, capture_output=True, text=True).stdout


def render(page):
    """The page as plain text, and the warnings."""
    done = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-rLL=1000n", "-ww"], input=page, capture_output=True, text=True)
    return re.sub(".\b", "", done.stdout), done.stderr


def flags(text):
    """The flags that a help text lists."""
    lines = [line[:30].split(" ")[2] for line in text.split("\n") if line.startswith("  -")]
    return {name.partition("{")[0] for line in lines for name in line.split(",")}


def commands_of(*command):
    listed = help_of(*command).partition("\nSubcommands:\n")[2]
    for name in re.findall(r"^  (\w+) ", listed.partition("\n\n")[0], re.M):
        yield (*command, name)
        yield from commands_of(*command, name)


def missing(text, page, *but):
    shown = {name for line in re.findall(r"^ {7}((?:-\S+, )*-\S+)", page, re.M) for name in line.split(", ")}
    return sorted(flags(text) - shown - set(but))


class ManPages(unittest.TestCase):
    def test_pages_render_without_warnings(self):
        for program in PROGRAMS:
            text, warnings = render((PAGES / f"{program}.1").read_text())
            self.assertEqual(warnings, "", program)
            self.assertRegex(text, rf"(?s)NAME\n +{program} - \w.*SYNOPSIS\n +{program} \[OPTIONS\]")

    def test_a_broken_page_gives_warnings(self):
        self.assertNotEqual(render(".TH A 1\n.SH NAME\n\\fQa\\[nothing]\n")[1], "")

    def test_each_flag_has_an_entry(self):
        for program in PROGRAMS:
            page, _ = render((PAGES / f"{program}.1").read_text())
            own = page.partition("\nOPTIONS\n")[2]
            self.assertEqual(missing(help_of(program), re.split(r"\n(?=[A-Z])", own)[0]), [], program)
            for command in commands_of(program):
                heading = " ".join(command[1:]).upper()
                section = re.split(r"\n(?=[A-Z])", page.partition(f"\n{heading}\n")[2])[0]
                self.assertIn(" ".join(command), section)
                self.assertEqual(missing(help_of(*command), section, "-h", "--help"), [], command)

    def test_a_flag_without_an_entry_is_found(self):
        self.assertEqual(missing("Options:\n  -a,--all      All\n  --none N   None\n", "OPTIONS\n       -a, --all\n              Not --none N.\n       -b     Nor --none.\n"), ["--none"])

    def test_sluice_has_commands(self):
        self.assertIn(("sluice", "bench", "codecs"), list(commands_of("sluice")))


if __name__ == "__main__":
    unittest.main()
