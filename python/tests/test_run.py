# SPDX-License-Identifier: Apache-2.0
"""`sluice run -- COMMAND` starts a script once for each worker, and leaves no process behind."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import RANKS, await_that, is_running

from sluice._programs import program


def processes_of(folder: pathlib.Path) -> list[int]:
    """The processes that have the folder of a test in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdecimal() or not is_running(int(entry.name)):
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if f"SLUICE_TEST_FOLDER={folder}".encode() in variables:
            found.append(int(entry.name))
    return found


class Run:
    """One `sluice run` with two workers."""

    def __init__(self, folder: pathlib.Path, options: list[str], command: list[str]) -> None:
        self.folder = folder
        self.output = folder / "output"
        words = [program("sluice"), "run", *options, "--http-listen", "off", "--report", str(folder / "report.json"), "--", *command]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, SLUICE_TEST_FOLDER=str(folder), TMPDIR=str(folder)),
                start_new_session=True,
            )

    def said(self, rank: int, key: str) -> list[Any]:
        path = self.folder / f"said-{rank}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [words[key] for words in map(json.loads, lines) if key in words]

    def await_running(self) -> None:
        def running() -> bool:
            assert self.process.poll() is None, self.text()
            return all(self.said(rank, "running") for rank in (0, 1))

        await_that(running, "both ranks are in their steps")

    def await_end(self) -> int:
        await_that(lambda: self.process.poll() is not None, f"the run ends:\n{self.text()}")
        return self.process.returncode

    def await_no_process(self) -> None:
        await_that(lambda: not processes_of(self.folder), "no process of the run is left")

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report


Begin = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: pathlib.Path) -> Iterator[Begin]:
    started: list[Run] = []

    def start(fault: str, *options: str) -> Run:
        command = [sys.executable, str(RANKS / "launched.py"), fault]
        started.append(Run(tmp_path, ["--workers", "2", *options], command))
        return started[-1]

    yield start
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()


def test_a_script_needs_no_arguments(begin: Begin) -> None:
    run = begin("none", "--set", "compression.uplink=int4")
    assert run.await_end() == 0, run.text()
    for rank in (0, 1):
        assert run.said(rank, "ranks") == [[rank, rank, rank, rank, 2]]
        assert run.said(rank, "codecs") == [["int4", "int8"]]
        assert run.said(rank, "coordinator")[0] in run.said(rank, "ports")[0]
    assert run.said(0, "sha256") == run.said(1, "sha256")
    assert "rank 0 prints a line\n" in run.text()
    assert "rank 1 prints a line\n" not in run.text()
    report = run.report()
    assert report["ok"] is True
    assert report["steps"] == 20
    assert report["parameters"] == 300 * 40 + 40
    assert report["bytes_up"] == (run.said(0, "bytes_up")[0] + run.said(1, "bytes_up")[0]) / 40
    assert report["ratio_up"] > 6
    assert report["exit_codes"] == {"shard 0": 0, "worker 0": 0, "worker 1": 0}
    run.await_no_process()


def test_links_are_paced(begin: Begin) -> None:
    run = begin("none", "--link-rate", "1gbit")
    assert run.await_end() == 0, run.text()
    for rank in (0, 1):
        ports = run.said(rank, "ports")[0]
        assert int(run.said(rank, "proxy")[0].rpartition(":")[2]) in ports
        assert run.said(rank, "coordinator")[0] not in ports
    assert run.said(0, "proxy") != run.said(1, "proxy")


def test_the_exit_code_of_a_script_is_that_of_the_run(begin: Begin) -> None:
    run = begin("exit")
    assert run.await_end() == 3
    assert "worker 1 (process" in run.text()
    assert "exited with code 3" in run.text()
    assert "    no data here\n" in run.text()
    assert run.report()["ok"] is False
    assert run.report()["exit_codes"]["worker 1"] == 3
    run.await_no_process()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_leaves_no_process(begin: Begin, number: signal.Signals, code: int) -> None:
    run = begin("child")
    run.await_running()
    assert len(processes_of(run.folder)) > 5
    run.process.send_signal(number)
    assert run.await_end() == code, run.text()
    run.await_no_process()


def test_a_kill_of_the_launcher_leaves_no_process(begin: Begin) -> None:
    run = begin("child")
    run.await_running()
    run.process.kill()
    run.await_end()
    run.await_no_process()
