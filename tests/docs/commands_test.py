#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands and flags in README.md, CONTRIBUTING.md, bench/README.md and docs/ against the programs' --help and the scripts' texts.

usage: commands_test.py ROOT BIN         BIN is the folder with the programs
"""
import functools
import pathlib
import re
import subprocess
import sys
import unittest

BIN = pathlib.Path(sys.argv.pop(2)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = {"sluice", "sluice-server", "sluice-worker", "sluice-relay"}
SCRIPT = re.compile(r"(?:scripts|tools|bench|tests|deploy)/[\w./-]+\.(?:py|sh)$")
FLAG = re.compile(r"--[a-z][a-z0-9-]*")
# Flags of other programs that pages name outside a command.
OTHERS = {"--help", "--logdir", "--ulimit", "--wait", "--build-arg", "--preset", "--set-json", "--reuse-values", "--network"}
# Pages that list names of the past, or of plans.
NAMES = {"docs/upgrading.md", "docs/names.md"}


def pages():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "bench/README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield path.relative_to(ROOT).as_posix(), path.read_text()


@functools.lru_cache(maxsize=None)
def help_flags(command):
    """Flags of a program or one of its commands, or None if it has no such command."""
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True)
    if done.returncode != 0 or (len(command) > 1 and f"Usage: {' '.join(command)} " not in done.stdout):
        return None
    return frozenset(FLAG.findall("\n".join(line[:60] for line in done.stdout.split("\n") if line.startswith("  -"))))


@functools.lru_cache(maxsize=None)
def subcommands(command):
    text = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True).stdout
    return frozenset(re.findall(r"^  (\w+) ", text.partition("\nSubcommands:")[2], re.M))


@functools.lru_cache(maxsize=None)
def script_flags(path):
    """Flags in the text of a script, and in those of the modules beside it."""
    texts = [path] if path.suffix == ".sh" else path.parent.glob("*.py")
    return frozenset(flag for text in texts for flag in FLAG.findall(text.read_text()))


def commands(text):
    """Commands in the code blocks of a page, and those in its text."""
    for span in re.findall(r"`((?:sluice|scripts/|tools/|bench/|tests/)[^`\n]*)`", text):
        yield span.split()
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S) + re.findall(r"(?:^ {4}.*\n)+", text, re.M)
    for block in blocks:
        for line in re.sub(r"\\\n", " ", block).split("\n"):
            for part in re.split(r"&&|\|\||[;|&](?= |$)", re.sub(r"(^|\s)#.*", "", line)):
                if part.strip():
                    yield part.split()


def faults_of(words):
    """What is wrong with one command."""
    for at, word in enumerate(words):
        name = word.removeprefix("$ ").rpartition("/")[2]
        if name in PROGRAMS and (word == name or word.endswith("bin/" + name)):
            command = (name,)
            rest = words[at + 1:]
            while rest and rest[0] in subcommands(command):
                command += (rest.pop(0),)
            known = help_flags(command)
            break
        if SCRIPT.match(word):
            if not (ROOT / word).exists():
                return [f"{word} does not exist"]
            rest, known = words[at + 1:], script_flags(ROOT / word)
            break
    else:
        return []
    for stop in ("--", "--exec"):
        if stop in rest:
            rest = rest[:rest.index(stop)]
    flags = [FLAG.match(word).group() for word in rest if FLAG.match(word)]
    return [f"{' '.join(words[:at + 1])} has no flag {flag}" for flag in flags if flag not in known]


class Commands(unittest.TestCase):
    def test_some_are_found(self):
        self.assertGreater(sum(1 for _, text in pages() for _ in commands(text)), 100)
        self.assertIn("--link-rate", help_flags(("sluice", "run")))

    def test_a_wrong_one_is_found(self):
        self.assertEqual(len(faults_of("sluice run job.yaml --no-such".split())), 1)
        self.assertEqual(len(faults_of("build/release/bin/sluice bench exchange --port 1".split())), 1)
        self.assertEqual(len(faults_of("scripts/no_such.sh".split())), 1)
        self.assertEqual(faults_of("srun -n 2 sluice-worker --job job.yaml --rank=1".split()), [])

    def test_flags_of_commands_exist(self):
        for page, text in pages():
            for words in commands(text):
                with self.subTest(page=page, command=" ".join(words)):
                    self.assertEqual(faults_of(words), [])

    def test_flags_in_the_text_exist(self):
        known = set(OTHERS)
        for program in PROGRAMS:
            waiting = [(program,)]
            while waiting:
                command = waiting.pop()
                known |= help_flags(command)
                waiting += [command + (sub,) for sub in subcommands(command)]
        for folder in ("scripts", "tools", "bench", "tests", "deploy"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".py", ".sh", ".cc"):
                    known |= set(FLAG.findall(path.read_text()))
        for page, text in pages():
            if page in NAMES:
                continue
            for span in re.findall(r"`([^`\n]+)`", text):
                for flag in FLAG.findall(span) if span.startswith("--") else []:
                    with self.subTest(page=page):
                        self.assertIn(flag, known)


if __name__ == "__main__":
    unittest.main()
