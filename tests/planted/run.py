#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each bug of bugs.py in a copy of the tree and runs the test that must find it.

usage: run.py ROOT [NAME...]    builds in ROOT/build/planted; NAME: only these bugs
       run.py ROOT --check      builds nothing: every bug can still be planted, and docs/promises.md names it, and names nothing unknown

Exits with 1 if a test passes with its bug, or fails without it.
"""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bugs import BUGS  # noqa: E402
from built_copy import BuiltCopy  # noqa: E402

SEEDS = "10000"  # Of each kind, as CI runs them.
LIMIT = 900  # Seconds for one test. The longest, all seeds of one kind, takes a third of it.
ENUMS = {"SurvivalBug": "tests/sim/survival.h"}


def sim_bugs(root):
    """`SurvivalBug::kName` and the like, as the simulators declare them."""
    for enum, path in ENUMS.items():
        body = re.search(rf"enum class {enum} {{(.*?)\n}};", (root / path).read_text(), re.DOTALL)[1]
        for name in re.findall(r"^\s*(k\w+),", body, re.MULTILINE):
            yield f"{enum}::{name}"


def rows(page):
    """(promise, names of planted bugs) of each row of the page's tables of promises."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 4 and cells[0] not in ("promise", "---"):
            yield cells[0], re.findall(r"`([\w:]+)`", cells[2])


def problems(root):
    for bug in BUGS:
        for old, _ in bug.changes:
            count = (root / bug.path).read_text().count(old)
            if count != 1:
                yield f"{bug.name}: {old!r} stands {count} times in {bug.path}, not once"
    known = {bug.name for bug in BUGS}
    named = set()
    simulated = set(sim_bugs(root))
    for promise, bugs in rows((root / "docs/promises.md").read_text()):
        named.update(bugs)
        if not bugs:
            yield f"docs/promises.md: no planted bug breaks the promise: {promise}"
        for bug in bugs:
            if bug not in known and bug not in simulated:
                yield f"docs/promises.md: there is no planted bug {bug}"
    for name in sorted(known - named):
        yield f"docs/promises.md: no promise names the planted bug {name}"


class Copy(BuiltCopy):
    def __init__(self, root):
        super().__init__(root, folder="planted", unity="ON")

    def finding(self, bug):
        """The line of output that shows the bug, or None if the test passes."""
        arguments = ["--kinds", bug.kinds, "--seeds", SEEDS, "--failures", "1", "--shrinks", "0"] if bug.kinds else [f"--gtest_filter={bug.tests}"]
        command = [self.folder / "build/release/bin" / bug.program, *arguments]
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            if bug.kinds:
                sys.exit(f"{bug.name}: the seeds take more than {LIMIT} s")
            return f"it does not end within {LIMIT} s"  # It waits for a state that the bug prevents.
        if "[==========] Running 0 tests" in done.stdout:
            sys.exit(f"{bug.name}: no test of {bug.program} matches {bug.tests}")
        if done.returncode == 0 or bug.shows not in done.stdout + done.stderr:
            return None
        lines = (done.stdout + done.stderr).splitlines()
        marks = (lambda line: " --first " in line) if bug.kinds else (lambda line: line.startswith("[  FAILED  ]"))
        return next(filter(marks, lines), f"exit status {done.returncode}").strip()

    def plant(self, bug):
        path = self.folder / bug.path
        text = path.read_text()
        for old, new in bug.changes:
            text = text.replace(old, new)
        path.write_text(text)

    def remove(self, bug):
        shutil.copy(self.root / bug.path, self.folder / bug.path)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    found = list(problems(root))
    for problem in found:
        print(problem)
    if found or names == ["--check"]:
        print(f"{len(BUGS)} planted bugs checked, {len(found)} problems")
        return 1 if found else 0
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    copy = Copy(root)
    copy.build(*sorted({bug.program for bug in chosen}))
    missed = 0
    for bug in chosen:
        if not bug.kinds and copy.finding(bug) is not None:  # CI runs as many seeds of all kinds without bugs.
            sys.exit(f"{bug.name}: {bug.tests} fails without the bug")
        copy.plant(bug)
        copy.build(bug.program)
        finding = copy.finding(bug)
        missed += finding is None
        print(f"{bug.name}: {'NOT FOUND' if finding is None else f'found: {finding}'} ({bug.tests or f'simulate, {bug.kinds}'})", flush=True)
        copy.remove(bug)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
