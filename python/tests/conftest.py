# SPDX-License-Identifier: Apache-2.0
"""Starts real ranks: processes that each run a script of tests/ranks, as torchrun would start them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

RANKS = pathlib.Path(__file__).parent / "ranks"
PATIENCE = 120.0  # Seconds until a state that must come counts as missing, on a busy machine.


def await_that(condition: Callable[[], Any], what: str) -> Any:
    """Returns what `condition` returns once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for this: {what}"
        time.sleep(0.02)
    return value


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class RankServer:
    """The process of rank_server.py. It starts with the first rank."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def fork(self, request: dict[str, Any]) -> int:
        """Returns the number of the new process."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(RANKS.parent / "rank_server.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(os.environ, OMP_NUM_THREADS="1"),  # PyTorch reads it when it is imported.
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        if self._process is not None:
            self._process.communicate()


class RankProcess:
    """A process that a RankServer has forked, with the methods of `subprocess.Popen`."""

    def __init__(self, server: RankServer, exit_file: pathlib.Path, request: dict[str, Any]) -> None:
        self.returncode: int | None = None
        self._exit = exit_file
        self.pid = server.fork(request | {"exit": str(exit_file)})

    def poll(self) -> int | None:
        if self.returncode is None and self._exit.exists():
            self.returncode = int(self._exit.read_text())
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        await_that(lambda: self.poll() is not None, f"process {self.pid} ends")


class Rank:
    """One process. What it says with `say` of ranks/common.py can be awaited."""

    def __init__(
        self, server: RankServer, script: str, arguments: list[str], rank: int, size: int, folder: pathlib.Path, env: dict[str, str]
    ) -> None:
        self.rank = rank
        self.said = folder / f"said-{rank}"
        self.said.touch()
        self.output = folder / f"output-{rank}"
        self.output.touch()
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), OMP_NUM_THREADS="1", SLUICE_TEST_FOLDER=str(folder), **env)
        for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
            environment.pop(name, None)
        request = {"script": str(RANKS / script), "arguments": arguments, "environment": environment, "output": str(self.output)}
        self.process = RankProcess(server, folder / f"exit-{rank}", request)

    def await_word(self, key: str) -> Any:
        def found() -> list[Any]:
            ended = self.process.poll() is not None
            for line in self.said.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    said = json.loads(line)
                    if key in said:
                        return [said[key]]
            assert not ended, f"rank {self.rank} ended before it said {key!r}:\n{self.text()}"
            return []

        return await_that(found, f"rank {self.rank} says {key!r}")[0]

    def words(self, key: str) -> list[Any]:
        """All that the rank has said under the key so far, in order."""
        said = [json.loads(line) for line in self.said.read_text().splitlines()]
        return [words[key] for words in said if key in words]

    def await_end(self) -> int:
        await_that(lambda: self.process.poll() is not None, f"rank {self.rank} ends:\n{self.text()}")
        assert self.process.returncode is not None
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def text(self) -> str:
        return self.output.read_text(errors="replace")


Start = Callable[..., list[Rank]]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts ranks; those that a test leaves running are ended."""
    started: list[Rank] = []
    server = RankServer()

    def begin(script: str, *arguments: str, size: int = 2, **env: str) -> list[Rank]:
        folder = tmp_path_factory.mktemp(script.removesuffix(".py"))
        ranks = [Rank(server, script, list(arguments), rank, size, folder, env) for rank in range(size)]
        started.extend(ranks)
        return ranks

    yield begin
    for rank in started:
        if rank.process.poll() is None:
            rank.process.kill()
            rank.process.wait()
    server.end()


def await_all(ranks: list[Rank]) -> None:
    """All ranks end well."""
    codes = [rank.await_end() for rank in ranks]
    assert codes == [0] * len(ranks), "\n".join(rank.text() for rank in ranks)
