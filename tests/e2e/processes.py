# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests and benchmarks of real processes: they inspect processes and act on them."""
import os
import pathlib
import random
import signal
import socket
import threading
import time
import urllib.request


RESERVED = []  # One UDP socket for each port that free_port() returned.


def free_port():
    """Returns a TCP port that no process uses and that no other call of free_port() returns before this process ends. A UDP
    socket of the same number reserves it: the kernel gives that number to one process only, and a TCP listener can still
    use it. The port is below those that the kernel gives to connections, so that no connection takes it by chance."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        reserved = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket() as holder:
            try:
                reserved.bind(("127.0.0.1", random.randrange(max(1024, first // 2), first) if first > 2048 else 0))
                holder.bind(reserved.getsockname())
            except OSError:
                reserved.close()
                continue  # Another process uses the port.
        RESERVED.append(reserved)
        return reserved.getsockname()[1]


def is_ready(address):
    """Returns the state that the health port reports."""
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return [""]


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def wait_until(condition, what, limit):
    """Returns the value of `condition` once it is true. Raises AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"timed out after {limit} s waiting for: {what}")


class SlowedDown:
    """Lets a process run for one part in `times` of the time, until it ends or end() is called. A job that waits for
    this process is equally slow and stops with it, so the job does not end before a test has acted."""

    PERIOD = 0.02  # In seconds.

    def __init__(self, pid, times):
        self.pid, self.times, self.over = pid, times, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over.is_set():
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(self.PERIOD * (1 - 1 / self.times))
                os.kill(self.pid, signal.SIGCONT)
                time.sleep(self.PERIOD / self.times)
        except ProcessLookupError:
            pass  # The process has ended.

    def end(self):
        self.over.set()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
