#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the trials of an experiment, one at a time. Each finished trial is a JSON record, so an interrupted run continues.

    bench/experiments/run.py quick_validation                      # half a minute
    bench/experiments/run.py matrix --out results --only method=dense-fp16,ternary --only seed=1
    bench/experiments/run.py matrix --list                         # the trials, and which of them have a record

A record's name is a hash of the trial's configuration and the version of Sluice. A failed trial and one that exceeds its time
limit also get a record, so the report counts them; --retry runs them again. Ctrl-C or SIGTERM ends the running trial, which
gets no record. No process of a trial outlives it or this program.
"""
from __future__ import annotations

import argparse
import csv
import ctypes
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import experiment  # noqa: E402
from exchange_run import Quiet, end_with_parent, machine  # noqa: E402

GRACE = 10  # Seconds that an interrupted program has to end.
UNAVAILABLE = 77  # bench/shaped.sh cannot make links here.
PROGRAMS = ("sluice", "sluice-server", "sluice-worker")
PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STATES = {"ok": "finished", "failed": "failed", "timeout": "exceeded the time limit", "unavailable": "not possible on this machine"}


class Interrupted(Exception):
    """A signal asked this program to end."""


def interrupt(number, _):
    for each in SIGNALS:  # A second Ctrl-C must not disturb the end of the trial.
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number))


def adopt_orphans() -> None:
    """Processes of a trial whose parent ends become children of this process, which can then end them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_children() -> None:
    """Kills and reaps all children, until none is left. This program only starts trials, so all of them belong to a trial."""
    while True:
        for child in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def end(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def ended(words: list[str], log: pathlib.Path, limit: float) -> int | None:
    """Exit status of the command, or None if it exceeded the limit. No process of it is left."""
    # A session of its own: Ctrl-C reaches this program only, which ends the command in order.
    with log.open("wb") as output:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                 preexec_fn=end_with_parent)
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            end(child)
        end_children()


def curve(folder: pathlib.Path) -> list[dict]:
    """The tests of a training run: step, seconds, bytes that rank 0 had sent and received, test loss and accuracy."""
    path = folder / "output/scalars.csv"
    if not path.exists():
        return []
    found, step, total = [], 0, 0.0
    for row in csv.DictReader(path.read_text().splitlines()):
        total += (int(row["step"]) - step) * (float(row["bytes_up"] or 0) + float(row["bytes_down"] or 0))
        step = int(row["step"])
        if row["test_loss"]:
            found.append({"step": step, "seconds": float(row["wall_seconds"]), "bytes": total, "test_loss": float(row["test_loss"]),
                          "test_accuracy": float(row["test_accuracy"])})
    return found


def moved(kind: str, report) -> dict:
    """Bytes that all workers together sent and received."""
    if not isinstance(report, dict):
        return {"bytes_up": None, "bytes_down": None}
    count = {"train": report.get("steps"), "exchange": (report.get("repeats") or 0) + (report.get("warmup") or 0)}.get(kind)
    workers = report.get("workers")
    return {key: report[key] * count * workers if count and workers and report.get(key) is not None else None
            for key in ("bytes_up", "bytes_down")}


def last_line(log: pathlib.Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:400] if lines else "it printed nothing"


def run_trial(trial: experiment.Trial, programs: pathlib.Path) -> dict:
    """The record of one trial, without what `Store.save` adds."""
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = pathlib.Path(name)
        places = {"{bin}": str(programs), "{root}": str(experiment.ROOT), "{python}": sys.executable, "{folder}": name}
        words = list(trial.words)
        for place, value in places.items():
            words = [word.replace(place, value) for word in words]
        log, quiet, begun = folder / "log", Quiet(), time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            status = ended(words, log, trial.time_limit)
        except OSError as error:
            raise SystemExit(f"{words[0]}: {error.strerror}; build it, or name another folder with --build") from None
        wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        state, reason, report = ("timeout" if status is None else "unavailable" if status == UNAVAILABLE else "ok"), "", None
        if status == 0:
            try:
                report = json.loads((folder / "report.json").read_text())
            except (OSError, ValueError) as error:
                state, reason = "failed", f"no report: {error}".replace(name, "")
        elif status is None:
            reason = f"did not end within {trial.time_limit:g} s"
        else:
            state = state if status == UNAVAILABLE else "failed"
            reason = f"status {status}: {last_line(log)}".replace(name, "")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"state": state, "reason": reason, "report": report, "curve": curve(folder),
                "cost": {"wall_seconds": wall, "cpu_seconds": cpu, **moved(trial.kind, report)}, **quiet.result()}


class Store:
    """The records of one experiment, a folder."""

    def __init__(self, folder: pathlib.Path, version: str):
        self.folder, self.version = folder, version
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{folder}: another run.py writes there; wait for it, or use another --out") from None

    def path(self, trial: experiment.Trial) -> pathlib.Path:
        return self.folder / f"{trial.key(self.version)}.json"

    def state(self, trial: experiment.Trial) -> str | None:
        path = self.path(trial)
        return json.loads(path.read_text())["state"] if path.exists() else None

    def save(self, trial: experiment.Trial, record: dict) -> None:
        """Atomically: a record is whole or absent."""
        text = json.dumps({"key": trial.key(self.version), "version": self.version, "trial": trial.axes(),
                           "command": list(trial.words), **record}, indent=1)
        temporary = self.path(trial).with_suffix(".new")
        temporary.write_text(text + "\n")
        temporary.rename(self.path(trial))


def facts(programs: pathlib.Path) -> dict:
    """What the record says about the programs and the machine."""
    digest = hashlib.sha256()
    for name in PROGRAMS:
        if (programs / name).exists():
            digest.update((programs / name).read_bytes())
    commit = subprocess.run(["git", "-C", str(experiment.ROOT), "rev-parse", "--short=10", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True).stdout.strip()
    return {"programs": digest.hexdigest()[:12], "commit": commit, "machine": machine()}


def version_of(programs: pathlib.Path) -> str:
    program = programs / "sluice"
    if not program.exists():
        raise SystemExit(f"there is no {program}: build it (ninja -C build/release), or name another folder with --build")
    return subprocess.run([str(program), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def chosen(trials, filters: list[str]) -> list[experiment.Trial]:
    found = list(trials)
    for text in filters:
        axis, equals, values = text.partition("=")
        if not equals or axis not in experiment.AXES:
            raise SystemExit(f"--only {text}: use AXIS=VALUE[,VALUE] with one of {', '.join(experiment.AXES)}")
        found = [trial for trial in found if str(getattr(trial, axis)) in values.split(",")]
    if not found:
        raise SystemExit(f"--only {' --only '.join(filters)}: no trial has these values; --list shows all")
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", metavar="NAME|FILE")
    parser.add_argument("--build", type=pathlib.Path, default=experiment.ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=pathlib.Path, default=experiment.ROOT / "build/experiments", help="folder of the records")
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=VALUE,...", help="only these trials; may be repeated")
    parser.add_argument("--retry", action="store_true", help="run trials again whose record is a failure")
    parser.add_argument("--list", action="store_true", help="print the trials and run nothing")
    return parser.parse_args()


def run_all(options, wanted: list[experiment.Trial], trials: list[experiment.Trial], store: Store) -> None:
    about = facts(options.build.resolve())
    for at, trial in enumerate(trials, 1):
        date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        record = {**run_trial(trial, options.build.resolve()), "date": date, **about}
        store.save(trial, record)
        note = f": {record['reason']}" if record["reason"] else ""
        print(f"{at}/{len(trials)} {trial.name()}: {STATES[record['state']]} after {record['cost']['wall_seconds']:.1f} s{note}", flush=True)
    states = [store.state(trial) for trial in wanted]
    print(f"{len(wanted)} trials: " + ", ".join(f"{states.count(state)} {text}" for state, text in STATES.items()))


def main() -> int:
    options = arguments()
    try:
        tested = experiment.load(options.experiment)
    except experiment.Wrong as error:
        print(error, file=sys.stderr)
        return 2
    wanted = chosen(tested.trials, options.only)
    store = Store(options.out / tested.name, version_of(options.build))
    if options.list:
        for trial in wanted:
            print(f"{store.path(trial).stem} {trial.name()}: {STATES.get(store.state(trial), 'not run')}")
        return 0
    shutil.copyfile(experiment.file_of(options.experiment), store.folder / "experiment.yaml")
    again = (None, "failed", "timeout", "unavailable") if options.retry else (None,)
    adopt_orphans()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        run_all(options, wanted, [trial for trial in wanted if store.state(trial) in again], store)
    except Interrupted as why:
        print(f"ended by {why.args[0].name}; the same command continues with the next trial", file=sys.stderr)
        return 128 + why.args[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
