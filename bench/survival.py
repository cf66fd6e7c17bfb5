#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of fault tolerance on real processes: sluice-server, and synthetic_worker in place of a training program.

usage: survival.py [overhead] [shard] [worker] [memory] [options]; the default is all four
  --bin FOLDER          programs (build/release/bin)
  --parameters N        parameters of the job with killed processes (100 million); memory is measured with half of them
  --small N, --every N  parameters, and steps between checkpoints, for overhead (1 million, 100)
  --uplink, --downlink  specs
  --pairs N             pairs of turns with and without checkpoints
  --runs N              kills of each kind
  --folder FOLDER       folder on the measured disk; checkpoints go to a new subfolder, which is removed at the end
  --json FILE           all figures

bench/README.md explains the figures.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))
from processes import free_port  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 600  # Seconds for any operation.

JOB = """\
name: survival-bench
workers: {workers}
shards: {shards}
model: {{name: mlp, hidden: [64]}}
data: {{format: synthetic, limit: 1000, test_limit: 128}}
batch_size_per_worker: 16
steps: 1000000
optimizer: {{name: sgd, lr: 0.01}}
seed: 7
compression: {{uplink: "{uplink}", downlink: "{downlink}"}}
server: {{heartbeat_interval: 250ms, lease_timeout: 10s, max_memory: 16GiB}}
"""


def status_of(pid, key):
    """A value of /proc/PID/status in bytes."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M).group(1)) * 1024


def load():
    return os.getloadavg()[0]


def cpu_of(pid):
    """Processor seconds that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Worker:
    """A synthetic_worker with a thread that reads its output."""

    def __init__(self, command, log):
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.steps = []  # (step, time)
        self.joined = []
        self.rollbacks = []
        self.changed = threading.Condition()
        self.over = False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            word, *rest = line.split()
            with self.changed:
                if word == "step":
                    self.steps.append((int(rest[0]), float(rest[1])))
                elif word == "joined":
                    self.joined.append((int(rest[0]), float(rest[1])))
                elif word == "rollback":
                    self.rollbacks.append(float(rest[0]))
                self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def wait_for(self, what):
        """Waits until `what` returns something other than None, and returns it."""
        end = time.monotonic() + LIMIT
        with self.changed:
            while (found := what(self)) is None:
                if self.over:
                    raise RuntimeError("a worker has ended; its log has the reason")
                if not self.changed.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise RuntimeError(f"a worker printed nothing for {LIMIT} s")
            return found

    def wait_for_step(self, step):
        return self.wait_for(lambda w: next((t for s, t in w.steps if s >= step), None))

    def take(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()

    def last(self):
        with self.changed:
            return self.steps[-1] if self.steps else (0, self.begun)


class Job:
    """Servers and workers, each in a process."""

    def __init__(self, options, folder, parameters, every=None, shards=2, workers=2, turns=False, uplink=None,
                 downlink=None, more=""):
        self.options, self.folder, self.shards_count, self.turns = options, folder, shards, turns
        self.parameters, self.every = parameters, every
        folder.mkdir(parents=True)
        self.checkpoints = folder / "checkpoints"
        text = JOB.format(workers=workers, shards=shards, uplink=uplink or options.uplink,
                          downlink=downlink or options.downlink) + more
        if every is not None:
            text += f"checkpoint: {{dir: {self.checkpoints}, interval: {every}}}\n"
        self.path = folder / "job.yaml"
        self.path.write_text(text)
        self.ports = [free_port() for _ in range(shards)]
        self.log = open(folder / "log", "w")
        self.shards = [self.start_shard(i) for i in range(shards)]
        self.workers = []

    def start_shard(self, i):
        command = [self.options.bin / "sluice-server", "--job", self.path, "--shard", str(i), "--listen",
                   f"127.0.0.1:{self.ports[i]}", "--http-listen", "off"]
        if i > 0:
            command += ["--coordinator", f"127.0.0.1:{self.ports[0]}"]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def start_worker(self, rank):
        command = [self.options.bin / "synthetic_worker", "--job", self.path, "--coordinator",
                   f"127.0.0.1:{self.ports[0]}", "--rank", str(rank), "--parameters", str(self.parameters), "--steps",
                   "1000000"]
        return Worker([str(part) for part in command] + (["--turns"] if self.turns else []), self.log)

    def start_workers(self, count=2):
        self.workers = [self.start_worker(rank) for rank in range(count)]
        for worker in self.workers:
            worker.wait_for(lambda w: w.joined or None)

    def complete(self):
        """Steps of complete checkpoints."""
        return sorted(int(path.parent.name[5:]) for path in self.checkpoints.glob("step-*/manifest.json"))

    def cpu(self):
        return sum(cpu_of(process.pid) for process in [worker.process for worker in self.workers] + self.shards)

    def end(self):
        for process in [worker.process for worker in self.workers] + self.shards:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        if kind is not None:
            sys.stderr.write("".join((self.folder / "log").read_text().splitlines(True)[-30:]))
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} within {LIMIT} s")
        time.sleep(0.01)


def quartiles(values):
    ordered = sorted(values)
    return [statistics.median(ordered), ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]]


def turn(job, steps):
    """Seconds and processor seconds of `steps` steps, including the write of their checkpoint."""
    begin, cpu = time.monotonic(), job.cpu()
    target = job.workers[0].last()[0] + steps
    for worker in job.workers:
        worker.take(steps)
    seconds = max(worker.wait_for_step(target) for worker in job.workers) - begin
    late = 0
    if job.every:
        wait_for(lambda: any(step > target - steps for step in job.complete()), "checkpoint of this turn")
        late = max(0, time.monotonic() - begin - seconds)
    return seconds, job.cpu() - cpu, late


def overhead_of(options, folder, uplink, downlink, parameters, every):
    """Runs alternating turns of `every` steps, with one checkpoint and without."""
    kinds = {"uplink": uplink, "downlink": downlink, "turns": True, "shards": 1}
    with Job(options, folder / "with", parameters, every=every, **kinds) as job, \
            Job(options, folder / "without", parameters, **kinds) as plain:
        for each in (job, plain):
            each.start_workers()
        # The warm-up fills residuals and touches pages. It takes half a turn more than a turn, because checkpoints
        # are named at multiples of `every` and should be in the middle of each turn.
        for each in (job, plain):
            turn(each, every + every // 2)
        wall, cpu, late, step_ms = [], [], [], []
        for pair in range(options.pairs):
            of = {each: turn(each, every) for each in ((job, plain), (plain, job))[pair % 2]}
            wall.append(of[job][0] / of[plain][0] - 1)
            cpu.append(of[job][1] / of[plain][1] - 1)
            late.append(of[job][2])
            step_ms.append(1000 * of[plain][0] / every)
        return {"uplink": uplink, "downlink": downlink, "parameters": parameters, "every": every,
                "time": quartiles(wall), "processors": quartiles(cpu), "steps_each": statistics.median(cpu) * every,
                "step_ms": statistics.median(step_ms),
                "late_seconds": max(late), "load": load()}


def percent(spread):
    return "{:+.1f} % ({:+.1f} to {:+.1f})".format(*(100 * value for value in spread))


def overhead(options, folder):
    rows = []
    for uplink, downlink in ((options.uplink, options.downlink), ("fp16", "fp16")):
        row = overhead_of(options, folder, uplink, downlink, options.small, options.every)
        rows.append(row)
        print(f"overhead  {uplink} up, {downlink} down, {options.small / 1e6:g} M parameters, a checkpoint every "
              f"{options.every} steps of {row['step_ms']:.1f} ms: time {percent(row['time'])}, processors "
              f"{percent(row['processors'])}; a checkpoint costs {row['steps_each']:.1f} steps of processors, "
              f"{100 * row['steps_each'] / 1000:.1f} % with one every 1000; load {row['load']:.1f}", flush=True)
    return rows


def wait_for_checkpoint(job, more):
    """Waits for one more complete checkpoint, then for `more` steps."""
    newest = max(job.complete(), default=0)
    wait_for(lambda: max(job.complete(), default=0) > newest, "checkpoint")
    job.workers[0].wait_for_step(job.workers[0].last()[0] + more)


def kill_once(job, kind):
    """Kills one process with SIGKILL and restarts it at once. Returns the times of events."""
    wait_for_checkpoint(job, 2)
    saved = job.complete()[-1]
    worker = job.workers[0]
    highest, _ = worker.last()
    with worker.changed:
        times = dict(worker.steps)
    sessions, count = len(worker.joined), len(worker.steps)
    if kind == "shard":
        job.shards[1].send_signal(signal.SIGKILL)
        job.shards[1].wait()
        restarted = time.monotonic()
        job.shards[1] = job.start_shard(1)
    else:
        job.workers[1].process.send_signal(signal.SIGKILL)
        job.workers[1].process.wait()
        restarted = time.monotonic()
        job.workers[1] = job.start_worker(1)
    # A step that closed before the kill may be read after it.
    worker.wait_for(lambda w: len(w.steps) > count + 1 and w.steps[-1][1] > restarted + 0.05 or None)
    end = time.monotonic() + LIMIT
    while True:
        with worker.changed:
            after = [(step, at) for step, at in worker.steps[count:] if at > restarted]
            back = len(worker.joined) > sessions
            new = [at for step, at in after if step > highest + 1]
            if new:
                break
        if time.monotonic() > end:
            raise RuntimeError("the job did not continue")
        time.sleep(0.01)
    again = [at for step, at in after if not back or at > worker.joined[-1][1]]
    if kind == "worker":
        own = job.workers[1].wait_for(
            lambda w: next((at for step, at in w.steps if step > highest), None))
        new = [own]
    return {"first_closed": again[0] - restarted, "first_new": new[0] - restarted,
            "age": restarted - times[saved] if saved in times else None, "steps_back": highest - saved,
            "recovery": "rollback" if back else "replay", "load": load()}


def kills(options, folder, kind):
    every = 10
    with Job(options, folder / kind, options.parameters, every=every) as job:
        job.start_workers()
        rows = [kill_once(job, kind) for _ in range(options.runs)]
        for row in rows:
            print(f"{kind:9} {options.parameters / 1e6:.0f} M parameters, {row['recovery']}: restart -> first closed step "
                  f"{row['first_closed']:.2f} s, -> first new step {row['first_new']:.2f} s; the checkpoint was "
                  f"{row['age']:.2f} s old, {row['steps_back']} steps back; load {row['load']:.1f}", flush=True)
        return rows


def memory(options, folder):
    """Resident bytes per parameter, beyond those of an idle process of the same job."""
    parameters = options.parameters // 2
    with Job(options, folder / "memory", parameters, every=20, shards=1) as job:
        time.sleep(2)
        idle = status_of(job.shards[0].pid, "VmRSS")
        job.start_workers()
        job.workers[0].wait_for_step(10)
        shard = status_of(job.shards[0].pid, "VmHWM")
        worker = status_of(job.workers[0].process.pid, "VmHWM")
        wait_for_checkpoint(job, 3)
        row = {"parameters": parameters, "shard": (shard - idle) / parameters,
               "shard_checkpoint": (status_of(job.shards[0].pid, "VmHWM") - idle) / parameters,
               # The figure excludes the worker's gradient and parameters, which take 8 bytes.
               "worker": (worker - idle) / parameters - 8,
               "worker_checkpoint": (status_of(job.workers[0].process.pid, "VmHWM") - idle) / parameters - 8}
        print(f"memory    {parameters / 1e6:.0f} M parameters, bytes for each at most: shard {row['shard']:.2f}, in a "
              f"checkpoint {row['shard_checkpoint']:.2f}; worker library {row['worker']:.2f}, in a checkpoint "
              f"{row['worker_checkpoint']:.2f} with the state that the program gave (4)", flush=True)
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["overhead", "shard", "worker", "memory", []])
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "build/release/bin")
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--small", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--uplink", default="topk:1%")
    parser.add_argument("--downlink", default="topk:1%")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    what = options.what or ["overhead", "shard", "worker", "memory"]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="survival-bench-", dir=options.folder))
    figures = {}
    try:
        for name in what:
            if name == "overhead":
                figures[name] = overhead(options, folder)
            elif name == "memory":
                figures[name] = memory(options, folder)
            else:
                figures[name] = kills(options, folder, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
