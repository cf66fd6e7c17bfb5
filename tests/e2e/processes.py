"""What the tests and benchmarks of real processes ask the system about them, and do to them."""
import os
import pathlib
import random
import signal
import socket
import threading
import time
import urllib.request


def free_port():
    """One that no connection is given by chance before somebody listens there."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as holder:
            try:
                holder.bind(("127.0.0.1", random.randrange(max(1024, first // 2), first) if first > 2048 else 0))
            except OSError:
                continue  # Somebody has it.
            return holder.getsockname()[1]


def is_ready(address):
    """As the health port there says."""
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
    """What `condition` gives once that is true; an AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"in {limit} s not: {what}")


class SlowedDown:
    """Lets a process run for one part in `times` of the time, until it ends or end() is called. A job that waits for it is
    as slow, and stands still while this process does: it does not end before a test has done to it what it wants to do."""

    PERIOD = 0.02  # Seconds.

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
            pass  # It has ended.

    def end(self):
        self.over.set()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
