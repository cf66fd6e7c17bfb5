# SPDX-License-Identifier: Apache-2.0
"""Shards that this process starts, and that end with it."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

from ._errors import SluiceError
from ._network import is_taken, listen_at, show_ports
from ._programs import program

_LINES_KEPT = 20
_FOLDER_PATIENCE = 30.0  # Seconds. The shard of killed ranks keeps the folder of checkpoints for up to 10 s.
_all: weakref.WeakSet[ShardProcess] = weakref.WeakSet()


def _let_go() -> None:
    """A forked child must not hold the shards' standard input open: they would outlive the parent."""
    for shard in list(_all):
        shard.let_go()


os.register_at_fork(after_in_child=_let_go)


class TokenFile:
    """A secret in memory, which this process and those that it starts read as a file. Nothing of it is left behind."""

    def __init__(self, token: str) -> None:
        self.fd = os.memfd_create("sluice-token", os.MFD_CLOEXEC)
        os.fchmod(self.fd, 0o600)  # Programs warn about the mode that such a file has at first.
        os.write(self.fd, token.encode() + b"\n")

    @property
    def path(self) -> str:
        """The path of the secret, in this process and in one that inherits `fd`."""
        return f"/proc/self/fd/{self.fd}"

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class ShardProcess:
    """One ``sluice-server``. It gets the job through its standard input, and ends when that is closed.

    Args:
        job: The text of the job.
        shard: The number of the shard.
        listen: ``HOST:PORT`` to listen on; port 0: any free one.
        coordinator: ``HOST:PORT`` of shard 0; empty for shard 0.
        http: ``HOST:PORT`` of the status page, or ``"off"``.
        token: The secret of the job.
        threads: Threads that sum contributions and encode results.

    Raises:
        SluiceError: The program did not start. The message has its last lines.
    """

    def __init__(self, job: str, shard: int, listen: str, coordinator: str, http: str, token: TokenFile, threads: int = 1) -> None:
        self.shard = shard
        arguments = [program("sluice-server"), "--job", "-", "--with-parent", "--shard", str(shard)]
        arguments += ["--listen", listen, "--http-listen", http, "--token-file", token.path, "--threads", str(threads)]
        if coordinator:
            arguments += ["--coordinator", coordinator]
        # A session of its own: Ctrl-C in a terminal is for the script, which then tells the others why it ends.
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[token.fd],
            start_new_session=True,
        )
        _all.add(self)
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._reader = threading.Thread(target=self._read_log, name=f"sluice-shard-{shard}", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None and self._process.stdout is not None
        announced = b""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(job.encode() + b"\n...\n")
            self._process.stdin.flush()
            announced = self._process.stdout.readline()
        if not announced:
            self.end()
            raise SluiceError(f"shard {shard} did not start: {self.last_words()}", code="UNAVAILABLE")
        ports = json.loads(announced)
        self.address: str = ports["address"]
        self.status_page: str | None = ports["status_page"] or None

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            line = raw.decode(errors="replace").rstrip()
            self._lines.append(line)
            if " WARNING " in line:
                print(line, file=sys.stderr, flush=True)

    def last_words(self) -> str:
        """Returns the last line that the program logged."""
        self._reader.join(timeout=1 if self._process.poll() is not None else 0)
        return self._lines[-1] if self._lines else f"exit code {self._process.poll()}"

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, limit: float | None = None) -> Iterator[None]:
        """Waits in short parts, between which a signal can act, until the program has ended or `limit` seconds are over."""
        deadline = None if limit is None else time.monotonic() + limit
        while self.running() and (deadline is None or time.monotonic() < deadline):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.05)
            yield

    def end(self) -> None:
        """Ends the program: first by the end of its input, then by a signal."""
        self.let_go()
        for limit, act in ((10.0, self._process.terminate), (5.0, self._process.kill)):
            for _ in self.wait(limit):
                pass
            if self.running():
                act()
        self._process.wait()

    def let_go(self) -> None:
        """Closes this process's end of the program's standard input."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def start_shard(
    job: str, shard: int, host: str, ports: range, coordinator: str, http: str, token: TokenFile, threads: int
) -> ShardProcess:
    """Starts a shard on the first port of `ports` that is free at the address `host`. The rest is as for `ShardProcess`.

    Waits while the shard of an earlier life of the job ends.
    """
    deadline = time.monotonic() + _FOLDER_PATIENCE
    while True:
        try:
            return _start_on_free_port(job, shard, host, ports, coordinator, http, token, threads)
        except SluiceError as failure:
            if "another coordinator uses checkpoint.dir" not in str(failure) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _start_on_free_port(
    job: str, shard: int, host: str, ports: range, coordinator: str, http: str, token: TokenFile, threads: int
) -> ShardProcess:
    for port in ports:
        if is_taken(host, port):
            continue
        try:
            return ShardProcess(job, shard, listen_at(host, port), coordinator, http, token, threads)
        except SluiceError:
            if not is_taken(host, port):  # Else another program was faster.
                raise
    raise SluiceError(
        f"shard {shard} found no free port at {host}: {show_ports(ports)} {'is' if len(ports) == 1 else 'are all'} taken on "
        f"{socket.gethostname()}; end the programs there, or give more ports (`ss -ltnp` lists them)",
        code="RESOURCE_EXHAUSTED",
    )
