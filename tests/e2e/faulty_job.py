# SPDX-License-Identifier: Apache-2.0
"""A small job of real processes, each started separately, whose disks, clocks and links a test can break.

fault_shim.cc (the library FOLDER_OF_PROGRAMS/libfault_shim.so) breaks a process's disk and clock. A process that is started with
`faults=NAME` reads its rules from the file that `rules(NAME, ...)` writes and its clock's offset from the one that `clock(NAME, ...)`
writes, at any time.
"""
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading

from processes import free_port, wait_until

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE / "survival.yaml"
LIMIT = 120  # In seconds, for any state. A hang fails with a message instead of blocking.


class FaultyJob:
    def __init__(self, test, programs, *settings, shards=2, job=JOB):
        """`settings` are KEY=VALUE for --set of all processes. Everything ends when `test` does."""
        self.programs, self.job = pathlib.Path(programs), job
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checkpoints = self.folder / "checkpoints"
        self.settings = list(settings)
        self.ports = [free_port() for _ in range(shards)]
        self.running = {}
        test.addCleanup(self.kill_all)

    def start(self, name, program, *arguments, faults=None, before=None):
        """Starts `program` and adds its output to the log `name`. The new process calls `before` first, if it is given."""
        command = [str(self.programs / program), "--job", str(self.job)]
        for setting in self.settings:
            command += ["--set", setting]
        environment = dict(os.environ)
        if faults is not None:
            # The address sanitizer's runtime must come first.
            library = str(self.programs / "libfault_shim.so")
            environment.update(LD_PRELOAD=library, SLUICE_SHIM_RULES=str(self.rules_path(faults)),
                               SLUICE_SHIM_CLOCK=str(self.clock_path(faults)))
        with self.log_path(name).open("a") as log:
            self.running[name] = subprocess.Popen([*command, *map(str, arguments)], stdout=log,
                                                  stderr=subprocess.STDOUT, env=environment, preexec_fn=before)
        return self.running[name]

    def server(self, shard, *arguments, name=None, listen=None, coordinator=None, faults=None, before=None):
        where = ["--shard", shard, "--listen", f"127.0.0.1:{listen or self.ports[shard]}", "--http-listen", "off"]
        if shard > 0:
            where += ["--coordinator", f"127.0.0.1:{coordinator or self.ports[0]}"]
        return self.start(name or f"shard-{shard}", "sluice-server", *where, *arguments, faults=faults, before=before)

    def worker(self, rank, *arguments, name=None, coordinator=None, faults=None, before=None):
        name = name or f"worker-{rank}"
        return self.start(name, "sluice-worker", "--rank", rank, "--coordinator",
                          f"127.0.0.1:{coordinator or self.ports[0]}", "--report", self.report_path(name), *arguments,
                          faults=faults, before=before)

    def rules(self, name, *lines):
        """Replaces the rules of the processes that were started with `faults=name`."""
        self.replace(self.rules_path(name), "".join(line + "\n" for line in lines))

    def clock(self, name, seconds):
        self.replace(self.clock_path(name), f"{seconds}\n")

    def replace(self, path, text):
        """Replaces the file atomically: a concurrent reader sees the old or the new text."""
        whole = path.with_suffix(".new")
        whole.write_text(text)
        whole.replace(path)

    def rules_path(self, name):
        return self.folder / f"{name}.rules"

    def clock_path(self, name):
        return self.folder / f"{name}.clock"

    def log_path(self, name):
        return self.folder / f"{name}.log"

    def log(self, name):
        path = self.log_path(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self, lines=40):
        return "".join(f"--- {path.stem}\n" + "".join(path.read_text(errors="replace").splitlines(True)[-lines:])
                       for path in sorted(self.folder.glob("*.log")))

    def wait_until(self, condition, what, limit=LIMIT):
        try:
            return wait_until(condition, what, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def wait_until_says(self, name, text, times=1):
        """Waits until the log `name` has `times` matches of the regular expression `text`."""
        self.wait_until(lambda: len(re.findall(text, self.log(name))) >= times, f"{name} says {text!r}")

    def complete(self, folder=None):
        """Returns the steps of the complete checkpoints."""
        return sorted(int(path.parent.name.partition("-")[2])
                      for path in (folder or self.checkpoints).glob("step-*/manifest.json"))

    def wait_until_complete(self, step=1, folder=None):
        """Returns the newest complete checkpoint of `step` or later."""
        return self.wait_until(lambda: max([0, *self.complete(folder)]) >= step and self.complete(folder)[-1],
                               f"a complete checkpoint of step {step} or later")

    def wait_until_done(self, test, ranks):
        """Waits until all processes have ended without an error. Returns the hash of the parameters, which must be equal on all ranks."""
        names = [*self.running]
        test.assertEqual(self.wait_until_ended(), dict.fromkeys(names, 0), self.logs())
        hashes = {self.report(f"worker-{rank}")["parameters_sha256"] for rank in range(ranks)}
        test.assertEqual(len(hashes), 1)
        return hashes.pop()

    def report_path(self, name):
        return self.folder / f"{name}.report.json"

    def report(self, name):
        return json.loads(self.report_path(name).read_text())

    def wait_until_ended(self, *names):
        """Returns exit codes by name; of all running processes if no name is given."""
        names = names or tuple(self.running)
        for name in names:
            self.wait_until(lambda: self.running[name].poll() is not None, f"{name} has ended")
        return {name: self.running[name].returncode for name in names}

    def kill(self, name):
        """Kills processes with SIGKILL, which also ends stopped ones."""
        self.running[name].kill()
        self.running.pop(name).wait()

    def kill_all(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


class Link:
    """A port that forwards to `backend` on this machine. Its connections can be cut, and either direction can be held up."""

    def __init__(self, backend):
        self.backend, self.ends, self.connections, self.lock = backend, [], 0, threading.Lock()
        self.goes = {"there": threading.Event(), "back": threading.Event()}
        for direction in self.goes.values():
            direction.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def hold(self, direction):
        """Stops traffic `there` or `back`, as if one direction of a network were cut."""
        self.goes[direction].clear()

    def release(self, direction):
        self.goes[direction].set()

    def cut(self):
        """Ends all connections, and accepts new ones."""
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Ends all connections, and accepts no more."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        for direction in self.goes.values():
            direction.set()

    def accept(self):
        with contextlib.suppress(OSError):  # Closed.
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.backend))
                except OSError:
                    near.close()
                    continue
                with self.lock:
                    self.ends += [near, far]
                self.connections += 1
                for source, target, direction in ((near, far, "there"), (far, near, "back")):
                    threading.Thread(target=self.pump, args=(source, target, direction, self.connections), daemon=True).start()

    def observe(self, connection, direction, piece):
        """Is called with every piece of traffic, and the number of its connection."""

    def pump(self, source, target, direction, connection):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                self.observe(connection, direction, piece)
                self.goes[direction].wait()
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
