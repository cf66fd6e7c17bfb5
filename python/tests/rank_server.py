# SPDX-License-Identifier: Apache-2.0
"""Imports PyTorch once, and forks a process for each rank that it is asked for: an import takes seconds of processor time.

Each line of the input is a request: the script, its arguments, its environment and the files for its output and its exit code.
The answer is the number of the process. A rank begins as a new Python process does, and it is the leader of its session.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import sys
from typing import Any

import torch.distributed
import torch.nn.parallel
import torch.optim

with contextlib.suppress(ImportError):
    importlib.import_module("torch._dynamo")  # PyTorch imports it in the first step of an optimizer.
gc.freeze()  # Else each rank goes through all of PyTorch's objects, and copies their pages.

_exits: dict[int, pathlib.Path] = {}


def write_exits() -> None:
    """Writes the exit codes of ranks that have ended, as `subprocess` counts them."""
    while _exits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        path = _exits.pop(pid)
        path.with_suffix(".new").write_text(str(os.waitstatus_to_exitcode(status)))
        path.with_suffix(".new").rename(path)


def become(request: dict[str, Any]) -> None:
    """Makes this forked process look like a new one."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(request["output"], os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(output, fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = [request["script"], *request["arguments"]]
    sys.path[0] = str(pathlib.Path(request["script"]).parent)


def serve() -> dict[str, Any] | None:
    """Answers requests. Returns the request in the process of a rank, and None at the end of the input."""
    # The handler does nothing, because signals can interrupt a handler. Its signal makes `woken` readable.
    woken, wakes = os.pipe()
    for fd in (woken, wakes):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    rest = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            write_exits()
        if 0 not in ready:
            continue
        read = os.read(0, 1 << 16)
        if not read:
            return None
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            request: dict[str, Any] = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                os.close(woken)
                os.close(wakes)
                become(request)
                return request
            _exits[pid] = pathlib.Path(request["exit"])
            print(pid, flush=True)


asked = serve()
if asked is not None:
    runpy.run_path(asked["script"], run_name="__main__")
