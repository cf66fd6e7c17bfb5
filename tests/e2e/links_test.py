# SPDX-License-Identifier: Apache-2.0
"""Compares a job's measurements of its links with shaped links (bench/shaped.sh): rates within 20 % in each direction, while they change,
and latency where the kernel can add one. Checks that the control of compression adapts to a slow link of a shard other than shard 0. Exits with 77 (skipped) if namespaces or links cannot be made.

usage: links_test.py SHAPED_SH FOLDER_OF_PROGRAMS
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from processes import wait_until

PORT = 7070  # In separate namespaces.
LIMIT = 120  # In seconds, for each figure. A figure may take this long, but a wrong figure never becomes right.
# TCP's share of an Ethernet link: 1448 of 1514 bytes, with an MTU of 1500 and timestamps.
PAYLOAD = 1448 / 1514
TOLERANCE = 0.2
MBIT = 1e6 / 8
DELAY_MS = 20
# Each step moves 4 MB in each direction. The 256 KiB that a bucket passes at once are a small part of these bytes. The step has one bundle, because
# a result of many would travel while later contributions fill the uplink. TCP's acknowledgements would wait behind these contributions, and TCP would
# need many steps to use the whole downlink.
PARAMETERS = 1_000_000
JOB = """\
name: links
workers: 1
shards: 1
model: {name: mlp, hidden: [64]}
data: {format: synthetic, limit: 1000, test_limit: 128}
batch_size_per_worker: 16
steps: 1000000
optimizer: {name: sgd, lr: 0.01}
compression: {uplink: none, downlink: none, bundle_bytes: 4MiB}
server: {heartbeat_interval: 200ms}
"""
# Both shards have half of the elements, so the link of shard 1 carries 4.8 MB/s of the model, and more while the bucket has bytes. That of shard 0
# carries 239 MB/s.
SLOW_PLAN = 12
CONTROLLED = JOB.replace("shards: 1", "shards: 2").replace("{uplink: none, downlink: none, bundle_bytes: 4MiB}",
                                                           "{uplink: fp16, downlink: fp16}\ncontrol: {policy: auto}")


# --- Inside: beside the bridge. ---

class Job:
    def __init__(self, programs, folder, text=JOB):
        self.programs = programs
        hosts = os.environ["SHAPED_SERVER_HOSTS"].split(",")
        self.address = f"{hosts[0]}:{PORT}"
        path = folder / "job.yaml"
        path.write_text(text)
        self.log = open(folder / "log", "w+")
        self.processes = [
            self.start("s0", "sluice-server", "--job", path, "--shard", "0", "--listen", self.address, "--http-listen",
                       f"127.0.0.1:{PORT + 1}", "--allow-anonymous"),
            *(self.start(f"s{shard}", "sluice-server", "--job", path, "--shard", shard, "--listen", f"{host}:{PORT}", "--coordinator",
                         self.address, "--http-listen", "off", "--allow-anonymous") for shard, host in enumerate(hosts) if shard > 0),
            self.start("w0", "synthetic_worker", "--job", path, "--coordinator", self.address, "--rank", "0", "--parameters",
                       str(PARAMETERS), "--steps", "1000000", "--compute-ms", "100")]

    def start(self, name, program, *arguments):
        return subprocess.Popen(["ip", "netns", "exec", name, str(self.programs / program), *map(str, arguments)], stdout=self.log,
                                stderr=self.log)

    def status(self):
        """Returns the status page's figures, or None if there are none yet."""
        assert all(process.poll() is None for process in self.processes), "a process has ended"
        asked = subprocess.run(["ip", "netns", "exec", "s0", sys.executable, __file__, "--ask"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def link(self):
        """Returns worker 0's figures, or None if there are none yet."""
        status = self.status()
        worker = status["workers"][0] if status else {}
        return worker if worker.get("uplink_rate") and worker.get("downlink_rate") else None

    def await_rates(self, what, up, down):
        """Returns megabits per second."""
        begin, seen = time.monotonic(), []

        def right():
            time.sleep(0.3)  # Each request takes processor time from the measurement.
            link = self.link()
            if not link:
                return False
            shares = [link[f"{way}link_rate"] / (rate * MBIT * PAYLOAD) for way, rate in (("up", up), ("down", down))]
            seen[:] = [f"{share:.3f}" for share in shares]
            return all(abs(share - 1) <= TOLERANCE for share in shares)

        try:
            wait_until(right, what, LIMIT)
        finally:
            print(f"{what}: {up} Mbit/s up, {down} down; measured {' and '.join(seen)} of that, after "
                  f"{time.monotonic() - begin:.1f} s", flush=True)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        if kind is not None:
            self.log.seek(0)
            sys.stderr.write("".join(line for line in self.log if not line.startswith("step "))[-4000:])


def measure(shaped, programs):
    with tempfile.TemporaryDirectory() as folder, Job(programs, pathlib.Path(folder)) as job:
        job.await_rates("at first", 100, 100)
        subprocess.run([shaped, "--set", "40mbit"], check=True)
        job.await_rates("a drop", 40, 40)
        # The worker's uplink traffic passes only the worker's end of the link.
        subprocess.run([shaped, "--set", "100mbit"], check=True)
        subprocess.run(["tc", "-n", "w0", "qdisc", "replace", "dev", "eth0", "handle", "10:", "tbf", "rate", "30mbit", "burst",
                        "262144", "latency", "50ms"], check=True)
        job.await_rates("unequal ways", 30, 100)
        subprocess.run([shaped, "--set", "100mbit"], check=True)
        job.await_rates("a rise", 100, 100)


def measure_latency(programs):
    with tempfile.TemporaryDirectory() as folder, Job(programs, pathlib.Path(folder)) as job:
        def right():
            time.sleep(0.3)
            link = job.link()
            ways = [1000 * link[f"{way}link_latency_seconds"] for way in ("up", "down")] if link else [0]
            print("latency, ms:", *(f"{way:.2f}" for way in ways), flush=True)
            return all(abs(way / DELAY_MS - 1) <= TOLERANCE for way in ways)

        wait_until(right, f"a latency of {DELAY_MS} ms", LIMIT)


def measure_slow_shard(shaped, programs):
    """Shard 1 has a slow link, which shard 0 does not see. Its control must choose a codec for this link."""
    subprocess.run([shaped, "--set", "1gbit"], check=True)
    for namespace, device in (("s1", "eth0"), ("bridge", "to-s1")):
        subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "handle", "10:", "tbf", "rate", "20mbit", "burst", "262144",
                        "latency", "50ms"], check=True)
    with tempfile.TemporaryDirectory() as folder, Job(programs, pathlib.Path(folder), CONTROLLED) as job:
        def adapted():
            time.sleep(0.3)
            status = job.status()
            plans = status["compression"]["plans"] if status else []
            seen[:] = re.findall(r"carry (\S+) MB/s up", " ".join(plan["reason"] for plan in plans))
            return any(float(rate) < SLOW_PLAN for rate in seen)

        begin, seen = time.monotonic(), []
        try:
            wait_until(adapted, "a plan for the slow link", LIMIT)
        finally:
            print(f"a slow link to shard 1: plans for {seen} MB/s after {time.monotonic() - begin:.1f} s", flush=True)


# --- Outside ---

def run_inside(shaped, programs, what, *arguments, shards=1):
    return subprocess.run([shaped, "--workers", "1", "--shards", str(shards), "--rate", "100mbit", *arguments, "--exec", sys.executable,
                           __file__, what, shaped, programs], stderr=subprocess.PIPE, text=True, timeout=6 * LIMIT)


def main():
    if sys.argv[1] == "--ask":
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT + 1}/status.json", timeout=LIMIT) as answer:
            return print(answer.read().decode())
    if sys.argv[1] == "--rates":
        return measure(sys.argv[2], pathlib.Path(sys.argv[3]))
    if sys.argv[1] == "--latency":
        return measure_latency(pathlib.Path(sys.argv[3]))
    if sys.argv[1] == "--slow-shard":
        return measure_slow_shard(sys.argv[2], pathlib.Path(sys.argv[3]))
    shaped, programs = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    for what, arguments, shards in (("--rates", (), 1), ("--slow-shard", (), 2), ("--latency", ("--delay", f"{DELAY_MS}ms"), 1)):
        done = run_inside(shaped, programs, what, *arguments, shards=shards)
        if done.returncode == 77:
            print(f"skipped: {done.stderr.strip()}")
            return 77 if what == "--rates" else 0
        assert done.returncode == 0, done.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
