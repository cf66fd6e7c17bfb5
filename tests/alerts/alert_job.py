# SPDX-License-Identifier: Apache-2.0
"""A small job whose processes all serve metrics, and whose state a person can read as the runbooks say: page, `sluice why` and logs."""
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest.mock
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from faulty_job import FaultyJob  # noqa: E402
from paced_proxy import PacedProxy  # noqa: E402
from processes import free_port  # noqa: E402

LIMIT = 300  # In seconds, for any state. A hang fails with a message instead of blocking.
COMPUTE_MS = 50  # A step's sleep. The machine is mostly idle, so that only the fault slows the job down.
WORKERS = 2


class AlertJob(FaultyJob):
    """One shard and two workers, unless `settings` say otherwise. The workers compute nothing, except those of `trains`."""

    def __init__(self, test, programs, name, *settings, shards=1, parameters=100_000, trains=False):
        super().__init__(test, programs, f"name={name}", f"shards={shards}", "steps=10000000", "server.lease_timeout=3s",
                         "server.rejoin_timeout=600s", shards=shards)
        self.name, self.parameters, self.trains = name, parameters, trains
        if not trains:
            self.settings += ["compression.uplink=none", "compression.downlink=none"]
        self.settings += settings
        self.http = {process: free_port() for process in [*map("shard-{}".format, range(shards)), *map("worker-{}".format, range(WORKERS))]}

    def saves(self, **keys):
        """Adds checkpoints to the job. `keys` are those of the job file's section, and replace earlier ones."""
        section = {"dir": str(self.checkpoints), "interval": 20, **keys}
        self.settings.append(f"checkpoint={json.dumps(section)}")
        return self

    def start_all(self):
        for shard in range(len(self.ports)):
            self.server(shard)
        for rank in range(WORKERS):
            self.worker(rank)
        return self

    def server(self, shard, faults=None):
        name = f"shard-{shard}"
        coordinator = ["--coordinator", f"127.0.0.1:{self.ports[0]}"] if shard > 0 else []
        return self.start(name, "sluice-server", "--shard", shard, "--listen", f"127.0.0.1:{self.ports[shard]}", "--http-listen",
                          f"127.0.0.1:{self.http[name]}", *coordinator, faults=faults)

    def worker(self, rank, *arguments, faults=None, proxy=None, before=None, compute_ms=COMPUTE_MS):
        name = f"worker-{rank}"
        program, more = "synthetic_worker", ["--parameters", self.parameters, "--steps", 10_000_000, "--compute-ms", compute_ms]
        if self.trains:
            program, more = "sluice-worker", ["--threads", 1]
        with unittest.mock.patch.dict(os.environ, {"grpc_proxy": proxy.url} if proxy else {}):
            return self.start(name, program, "--rank", rank, "--coordinator", f"127.0.0.1:{self.ports[0]}", "--http-listen",
                              f"127.0.0.1:{self.http[name]}", *more, *arguments, faults=faults, before=before)

    def follow(self, proxy):
        command = [self.programs / "sluice", "follow", f"127.0.0.1:{self.ports[0]}", "--output", self.folder / "weights"]
        with self.log_path("follower").open("a") as log:
            self.running["follower"] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "grpc_proxy": proxy.url})

    def stop_all(self):
        """Ends the job as an operator would. Shard 0 saves a last checkpoint first."""
        self.running["shard-0"].terminate()
        self.wait_until_ended()
        self.running.clear()

    def end_all(self):
        """Waits for the end of all processes. Their exit codes are those of a failed job."""
        codes = self.wait_until_ended()
        self.running.clear()
        return codes

    def wait_until(self, condition, what, limit=LIMIT):
        return super().wait_until(condition, what, limit)

    def status(self):
        """Returns what the status page shows, or an empty status while there is no page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http['shard-0']}/status.json", timeout=LIMIT) as answer:
                return json.loads(answer.read())
        except OSError:
            return {}

    def step(self):
        return self.status().get("step", 0)

    def checkpoint(self, key):
        """Returns a number of the status page's section on checkpoints, or 0 while there is no page."""
        return (self.status().get("checkpoint") or {}).get(key, 0)

    def warnings(self):
        return [warning["text"] for warning in self.status().get("warnings", [])]

    def warned(self, pattern):
        return next((text for text in self.warnings() if re.search(pattern, text)), None)

    def wait_until_steps(self, steps=5):
        """Waits until the job runs and has made progress from then on."""
        self.wait_until(lambda: self.status().get("phase") == "running" and self.step() > 0, "the job runs")
        begun = self.step()
        self.wait_until(lambda: self.step() >= begun + steps, f"{steps} steps after step {begun}")

    def sluice(self, command, *arguments):
        done = subprocess.run([self.programs / "sluice", command, "--coordinator", f"127.0.0.1:{self.ports[0]}", *arguments],
                              capture_output=True, text=True, timeout=LIMIT)
        return (done.stdout + done.stderr).strip()


class CorruptingProxy(PacedProxy):
    """A link that changes a byte in the middle of each large message of a worker while `corrupts` is set, as a broken machine would."""

    LARGE = 30_000

    def __init__(self):
        self.corrupts = threading.Event()
        super().__init__()

    def pass_on(self, piece, way):
        if way != "up" or len(piece) < self.LARGE or not self.corrupts.is_set():
            return piece
        changed = bytearray(piece)
        changed[len(changed) // 2] ^= 0xFF
        return bytes(changed)
