#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a release's data for the tests of later versions: frames of every codec and, for each kind of job, its file and a checkpoint
folder, as the release's programs wrote them.

usage: make.py FOLDER_OF_PROGRAMS VERSION

Replaces tests/compatibility/VERSION except programs.sh. Each job is stopped halfway, so that a later version can continue it.
"""
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FRAMES = HERE.parent / "golden" / "frames"
LIMIT = 120       # In seconds, for one job.
SIZE_MAX = 1 << 20  # In bytes, for all files of a version.

# The smallest job whose checkpoints contain everything: a model with residuals in both directions.
COMMON = """name: {name}
workers: 2
shards: 2
model: {{name: mlp, hidden: [2]}}
data: {{format: synthetic, limit: 256, test_limit: 32}}
batch_size_per_worker: 8
steps: 1000000
lr_schedule: {{name: cosine}}
seed: 7
device: cpu
server: {{heartbeat_interval: 200ms, lease_timeout: 60s}}
"""
COMPRESSED = "compression: {uplink: topk:5%+int4, downlink: int8, min_elements: 16}\n"
JOBS = {
    "sync": COMPRESSED + """optimizer: {name: adam, lr: 0.001}
ema_decay: 0.99
checkpoint: {dir: checkpoints, interval: 20, keep: 1}
""",
    "sync-store-shards": COMPRESSED + """optimizer: {name: sgd, lr: 0.1}
checkpoint: {dir: checkpoints, interval: 20, keep: 1, store: shards}
""",
    "sync-updates-on-shards": COMPRESSED + """optimizer: {name: adam, lr: 0.001, location: shards}
checkpoint: {dir: checkpoints, interval: 20, keep: 1}
""",
    "async": COMPRESSED + """mode: async
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
checkpoint: {dir: checkpoints, interval: 20, keep: 1}
""",
    "local-sgd": COMPRESSED + """mode: local_sgd
local_steps: 5
optimizer: {name: sgd, lr: 0.05}
checkpoint: {dir: checkpoints, interval: 10, keep: 1}
""",
    "planned": """compression: {uplink: topk:5%+int4, downlink: int8, min_elements: 16}
control: {policy: schedule, schedule: cyclic, start: 0.5, end: 0.05, steps: 16, stages: 2}
optimizer: {name: sgd, lr: 0.1}
checkpoint: {dir: checkpoints, interval: 20, keep: 1}
""",
    "elastic": COMPRESSED + """membership: elastic
min_workers: 1
optimizer: {name: sgd, lr: 0.1}
checkpoint: {dir: checkpoints, interval: 20, keep: 1}
""",
    "relays": COMPRESSED + """relays: {workers: [1, 1], uplink: int8}
optimizer: {name: sgd, lr: 0.1}
checkpoint: {dir: checkpoints, interval: 200, keep: 2}
""",
}
RACKS = 2  # In the job with relays. Each rack has its own run beside the job's.


def wait_until(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"after {LIMIT} s still not: {what}")
        time.sleep(0.05)


def copy_frames(folder):
    folder.mkdir()
    for path in sorted(FRAMES.glob("*.txt")):
        shutil.copyfile(path, folder / path.name)


def runs_of(name, folder):
    """Returns the folders of runs in a checkpoint folder."""
    return [folder, *[folder / f"rack-{rack}" for rack in range(RACKS if name == "relays" else 0)]]


def complete(run):
    return {path.parent.name for path in run.glob("step-*/manifest.json")}


def common(name, folder):
    """Returns the steps of which all runs of the job have a complete checkpoint."""
    return set.intersection(*[complete(run) for run in runs_of(name, folder)])


def run(programs, name, folder):
    """Runs the job of `folder`/job.yaml until it has a checkpoint."""
    with tempfile.TemporaryDirectory() as logs, (folder / "console.txt").open("w+") as console:
        command = [str(programs / "sluice"), "run", "job.yaml", "--quiet", "--http-listen", "off", "--threads", "1",
                   "--log-dir", logs]
        process = subprocess.Popen(command, cwd=folder, stdout=console, stderr=subprocess.STDOUT)
        try:
            checkpoints = folder / "checkpoints"
            wait_until(lambda: process.poll() is not None or common(name, checkpoints),
                       f"{name} has a checkpoint")
            # The job requests one more checkpoint and ends.
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        console.seek(0)
        text = console.read()
        if not common(name, checkpoints):
            logs_text = "".join(path.read_text() for path in sorted(pathlib.Path(logs).glob("*.log")))
            sys.exit(f"{name} ended without a checkpoint:\n{text}{logs_text}")
    (folder / "console.txt").unlink()


def tidy(name, folder):
    """Keeps only the newest checkpoint. A stop also leaves locks and unfinished checkpoints."""
    newest = max(common(name, folder))
    for path in folder.rglob("lock"):
        path.unlink()
    for path in list(folder.rglob("step-*")):
        if path.is_dir() and path.name != newest:
            shutil.rmtree(path)


def main():
    if len(sys.argv) != 3 or not re.fullmatch(r"\d+\.\d+", sys.argv[2]):
        sys.exit(__doc__)
    programs, version = pathlib.Path(sys.argv[1]).resolve(), HERE / sys.argv[2]
    version.mkdir(exist_ok=True)
    for path in version.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    copy_frames(version / "frames")
    for name, text in JOBS.items():
        folder = version / name
        folder.mkdir()
        (folder / "job.yaml").write_text(COMMON.format(name=name) + text)
        run(programs, name, folder)
        tidy(name, folder / "checkpoints")
        for one in runs_of(name, folder / "checkpoints"):
            subprocess.run([programs / "sluice", "checkpoint", "verify", one], check=True)
    size = sum(path.stat().st_size for path in version.rglob("*") if path.is_file())
    print(f"{version}: {size} bytes")
    if size > SIZE_MAX:
        sys.exit(f"{version} has {size} bytes; at most {SIZE_MAX} belong into the repository")


if __name__ == "__main__":
    main()
