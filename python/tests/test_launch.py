# SPDX-License-Identifier: Apache-2.0
"""`sluice.launch` runs a function on several ranks, and leaves no process behind."""

from __future__ import annotations

import os
import pathlib
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from conftest import RANKS, await_that
from test_run import processes_of

from sluice._servers import TokenFile


Begin = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def begin(tmp_path: pathlib.Path) -> Iterator[Begin]:
    started = []

    def start(function: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(RANKS / "notebook.py"), function],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, SLUICE_TEST_FOLDER=str(tmp_path)),
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    for pid in processes_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


def text_of(folder: pathlib.Path) -> str:
    return (folder / "output").read_text(errors="replace")


def end(folder: pathlib.Path, process: subprocess.Popen[bytes]) -> str:
    """Returns what the script printed. No process of it is left."""
    await_that(lambda: process.poll() is not None, f"the script ends:\n{text_of(folder)}")
    await_that(lambda: not processes_of(folder), "no process is left")
    return text_of(folder)


def test_the_result_of_rank_0(begin: Begin, tmp_path: pathlib.Path) -> None:
    process = begin("train")
    text = end(tmp_path, process)
    assert process.returncode == 0, text
    assert "result (0, 2, 'int4', '0')" in text


def test_the_exception_of_the_first_rank_that_fails(begin: Begin, tmp_path: pathlib.Path) -> None:
    text = end(tmp_path, begin("refuse"))
    assert text.rstrip().splitlines()[-1].endswith("Refusal: rank 1 has no data"), text
    assert 'raise Refusal("rank 1 has no data")' in text, text
    assert "direct cause of the following exception" in text


def test_a_rank_that_is_killed(begin: Begin, tmp_path: pathlib.Path) -> None:
    text = end(tmp_path, begin("die"))
    assert "SluiceError: rank 1 was killed by signal 9 (Killed)" in text, text


def test_an_interrupt_leaves_no_process(begin: Begin, tmp_path: pathlib.Path) -> None:
    process = begin("wait")
    await_that(lambda: "waits" in text_of(tmp_path), f"rank 0 waits:\n{text_of(tmp_path)}")
    assert len(processes_of(tmp_path)) > 3
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in end(tmp_path, process)


def test_a_kill_leaves_no_rank(begin: Begin, tmp_path: pathlib.Path) -> None:
    process = begin("wait")
    await_that(lambda: "waits" in text_of(tmp_path), f"rank 0 waits:\n{text_of(tmp_path)}")
    ranks = [pid for pid in processes_of(tmp_path) if pid != process.pid and b"spawn_main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(ranks) == 2
    process.kill()
    process.wait()
    await_that(lambda: not set(ranks) & set(processes_of(tmp_path)), "no rank is left")


def test_a_notebook_function_without_cloudpickle() -> None:
    code = "import sluice, sys\nsys.modules['cloudpickle'] = None\ndef train(session): pass\nsluice.launch(train)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "install cloudpickle, or move the function to a file" in done.stderr, done.stderr


def test_only_this_user_may_read_the_token_of_a_session() -> None:
    token = TokenFile("t" * 32)
    assert stat.S_IMODE(os.stat(token.path).st_mode) == 0o600
    assert pathlib.Path(token.path).read_text() == "t" * 32 + "\n"
    token.close()
