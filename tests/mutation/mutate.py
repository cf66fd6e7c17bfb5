#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes one condition, constant or statement of the production code at a time, and lists the changes that no test notices.

usage: mutate.py ROOT [--seed N] [--count N] [--skip N] [--folders FOLDER,...] [--list]
  --seed N       draws other mutants (default 1)
  --count N      mutants to try (default 100)
  --skip N       leaves out the first N drawn mutants, to continue an earlier run on the same tree
  --folders ...  of the folders below (default: all)
  --list         prints the drawn mutants and builds nothing

Each mutant is built in a copy of the tree (ROOT/build/mutation) and runs the tests of its folder, then 200 seeds of each kind of simulated
job. It is killed if a test fails, hangs or crashes. Mutants that do not compile are replaced by others. A survivor is either equivalent to the
original, or shows a test that is missing. Exits with 0 whatever survives.
"""
import argparse
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "planted"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from built_copy import BuiltCopy  # noqa: E402  (tests/planted)
from mutants import mutants  # noqa: E402

# The programs that test a folder. The simulators run all of these folders but server/rpc.
PROGRAMS = {
    "server/coordinator": ["server_coordinator_tests", "simulate"],
    "server/shard": ["server_shard_tests", "simulate"],
    "server/control": ["control_tests", "control_sim_tests", "simulate"],
    "server/rpc": ["server_rpc_tests", "server_process_tests", "session_rpc_tests", "security_rpc_tests"],
    "worker/core": ["worker_core_tests", "simulate"],
}
# Seconds for one program: of the processor, and on the clock for one that only waits. On a quiet machine, no program takes a tenth of these.
PROCESSOR_LIMIT = 120
LIMIT = 1200
SEEDS = "200"


def candidates(root, folders):
    names = subprocess.run(["git", "-C", root, "ls-files", "--", *folders], check=True, capture_output=True, text=True).stdout.split()
    return [mutant for name in sorted(names) if name.endswith(".cc") for mutant in mutants(name, (root / name).read_text())]


def limit_processor():
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_LIMIT, PROCESSOR_LIMIT + 5))


class Tree(BuiltCopy):
    def __init__(self, root):
        super().__init__(root, folder="mutation", unity="OFF")

    def compiles(self, programs):
        environment = {**self.environment(), "CCACHE_READONLY": "1"}  # No other build needs a mutant.
        done = subprocess.run(["ninja", "-C", "build/release", *programs], cwd=self.folder, env=environment, capture_output=True, text=True)
        return done.returncode == 0

    def killer(self, programs):
        """The first program that notices the mutant, or None."""
        for program in programs:
            arguments = ["--seeds", SEEDS, "--failures", "1", "--shrinks", "0"] if program == "simulate" else ["--gtest_fail_fast"]
            try:
                done = subprocess.run([self.folder / "build/release/bin" / program, *arguments], cwd=self.folder, capture_output=True, timeout=LIMIT,
                                      preexec_fn=limit_processor)
            except subprocess.TimeoutExpired:
                return f"{program}, which does not end"
            if done.returncode == -signal.SIGXCPU:
                return f"{program}, which does not end its computation"
            if done.returncode != 0:
                return program
        return None


def folder_of(mutant, folders):
    return next(folder for folder in folders if mutant.path.startswith(folder + "/"))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--folders", default=",".join(PROGRAMS))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    root, folders = options.root.resolve(), options.folders.split(",")
    drawn = candidates(root, folders)
    random.Random(options.seed).shuffle(drawn)
    print(f"{len(drawn)} mutants, seed {options.seed}, without the first {options.skip}", flush=True)
    drawn = drawn[options.skip:]
    if options.list:
        for mutant in drawn[: options.count]:
            print(f"{mutant.path}:{mutant.line}: {mutant.before.strip()}  ->  {mutant.after.strip()}")
        return 0
    tree = Tree(root)
    everything = sorted({program for folder in folders for program in PROGRAMS[folder]})
    tree.build(*everything)
    for program in everything:
        if killer := tree.killer([program]):
            sys.exit(f"{killer} fails without a mutant")
    tried, survivors, unbuilt = 0, [], 0
    for mutant in drawn:
        if tried == options.count:
            break
        programs = PROGRAMS[folder_of(mutant, folders)]
        began = time.monotonic()
        path = tree.folder / mutant.path
        lines = (root / mutant.path).read_text().split("\n")
        lines[mutant.line - 1] = mutant.after
        path.write_text("\n".join(lines))
        if tree.compiles(programs):
            tried += 1
            killer = tree.killer(programs)
            if killer is None:
                survivors.append(mutant)
            print(
                f"{tried} {mutant.path}:{mutant.line}: {mutant.before.strip()}  ->  {mutant.after.strip()}: "
                f"{f'killed by {killer}' if killer else 'SURVIVED'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
        else:
            unbuilt += 1
        path.write_text((root / mutant.path).read_text())
    print(f"{tried - len(survivors)} of {tried} mutants killed; {unbuilt} others did not compile. Survivors:")
    for mutant in survivors:
        print(f"  {mutant.path}:{mutant.line}: {mutant.before.strip()}  ->  {mutant.after.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
