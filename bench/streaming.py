#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares streaming local steps (fragments, fragment_delay) with blocking ones: accuracy, and waiting and traffic on slow links.

usage: bench/streaming.py [--seeds 1,2,3] [--rate 20mbit] [--fragments 4] [--delay 2] [--only accuracy|links] [--json FILE]

`accuracy` trains examples/fashion-mnist-local-sgd.yaml. `links` trains an mlp of a million parameters with int8, 20 local steps and four workers
behind links of `--rate` (bench/shaped.sh). `--passes` sets how long its steps take. `waiting` is the time that rank 0 spends waiting for exchanges,
as a part of the run. `fullest second` is the most traffic on the link of a worker within a second, in both directions together, as a part of the
blocking run's. If exchanges take less than a second and fragments are exchanged more than a second apart, that is 1 / fragments. With --points,
--waiting and --fullest, the program exits with 1 if a goal is missed. Exits with 77 if no links can be made.
"""
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from seed_sweep import ROOT, parser_of, train

JOB = str(ROOT / "examples/fashion-mnist-local-sgd.yaml")
LINK_JOB = """\
name: streaming-bench
mode: local_sgd
local_steps: %d
outer_optimizer: average
workers: 4
model: {name: mlp, hidden: [1024, 256]}
data: {format: synthetic, limit: 100000, test_limit: 100}
batch_size_per_worker: 64
steps: %d
log_interval: 1
optimizer: {name: sgd, lr: 0.01}
compression: {uplink: int8, downlink: int8}
server: {lease_timeout: 120s}
"""
WORKERS, LOCAL_STEPS, PORT, LIMIT = 4, 20, 7070, 1800
EVERY = 0.02  # Seconds between two readings of the links' counters.


def link_bytes():
    """Bytes that have passed each worker's link, in both directions. Inside of bench/shaped.sh."""
    counted = re.findall(r"to-w\d+:\s*(\d+)(?:\s+\d+){7}\s+(\d+)", pathlib.Path("/proc/net/dev").read_text())
    return [int(received) + int(sent) for received, sent in counted]


def fullest_second(readings):
    """The most bytes of one worker within a second. `readings` are pairs of a time and the bytes of each worker."""
    most, first = 0, 0
    for at, counts in readings:
        while readings[first][0] < at - 1:
            first += 1
        most = max(most, *(now - then for now, then in zip(counts, readings[first][1])))
    return most


def inside(options):
    """Runs one job between the links, and writes its figures."""
    folder, host = options.inside, os.environ["SHAPED_SERVER_HOSTS"]
    arguments = ["--job", str(folder / "job.yaml")]
    for change in options.set:
        arguments += ["--set", change]
    log = open(folder / "log", "w")

    def start(name, program, *more):
        return subprocess.Popen(["ip", "netns", "exec", name, str(options.bin / program), *arguments, *more], stdout=log, stderr=log)

    server = start("s0", "sluice-server", "--listen", f"{host}:{PORT}", "--http-listen", "off", "--allow-anonymous")
    workers = [start(f"w{rank}", "sluice-worker", "--rank", str(rank), "--coordinator", f"{host}:{PORT}", "--threads", "1") for rank in range(WORKERS)]
    readings, end = [], time.monotonic() + LIMIT
    while workers[0].poll() is None and time.monotonic() < end:
        readings.append((time.monotonic(), link_bytes()))
        time.sleep(EVERY)
    for process in [*workers, server]:
        process.kill()
        process.wait()
    if workers[0].returncode != 0:
        sys.exit((folder / "log").read_text()[-3000:])
    with open(folder / "out/scalars.csv") as file:
        rows = [(int(row["step"]), float(row["wall_seconds"]), float(row["exposed_seconds"])) for row in csv.DictReader(file) if row["exposed_seconds"]]
    rows = [row for row in rows if row[0] >= LOCAL_STEPS]  # The first exchange has the start in it.
    seconds, steps = rows[-1][1] - rows[0][1], rows[-1][0] - rows[0][0]
    # `exposed_seconds` is a mean over the steps since the row before.
    waited = sum((row[0] - before[0]) * row[2] for before, row in zip(rows, rows[1:]))
    begun = readings[-1][0] - seconds
    (folder / "figures.json").write_text(json.dumps({
        "waiting": waited / seconds, "step_seconds": seconds / steps, "fullest": fullest_second([reading for reading in readings if reading[0] >= begun])}))


def link_figures(options, changes):
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        folder = pathlib.Path(folder)
        (folder / "job.yaml").write_text(LINK_JOB % (LOCAL_STEPS, options.link_steps))
        command = [str(ROOT / "bench/shaped.sh"), "--workers", str(WORKERS), "--shards", "1", "--rate", options.rate, "--exec", sys.executable, __file__,
                   "--bin", str(options.bin), "--inside", str(folder)]
        for change in [*changes, f"output={folder}/out", f"gradient_accumulation_steps={options.passes}"]:
            command += ["--set", change]
        status = subprocess.run(command).returncode
        if status != 0:
            sys.exit(status)
        return json.loads((folder / "figures.json").read_text())


def accuracy(options, streams, known):
    """Prints accuracies of both kinds. Returns the mean difference in points."""
    gaps = []
    for seed in options.seeds:
        blocking, streaming = (known(f"{' '.join(changes) or 'blocking'}, seed {seed}", lambda: train(options, JOB, changes, seed, False)["test_accuracy"])
                               for changes in ([], streams))
        gaps.append(100 * (streaming - blocking))
        print(f"seed {seed}: blocking {blocking:.2%}, streaming {streaming:.2%}, {gaps[-1]:+.2f} points", flush=True)
    print(f"mean {statistics.mean(gaps):+.2f} points")
    return statistics.mean(gaps)


def links(options, streams, known):
    """Prints the figures of both kinds. Returns waiting and fullest second of the streaming run, in percent."""
    blocking, streaming = (known(f"{' '.join(changes) or 'blocking'}, {options.rate}, {options.passes} passes", lambda: link_figures(options, changes))
                           for changes in ([], streams))
    print(f"\n| links of {options.rate} | step | waiting | fullest second |\n|---|---|---|---|")
    for name, found in (("blocking", blocking), ("streaming", streaming)):
        print(f"| {name} | {1000 * found['step_seconds']:.0f} ms | {found['waiting']:.1%} | {found['fullest'] / 1e6:.2f} MB, "
              f"{found['fullest'] / blocking['fullest']:.0%} |")
    return 100 * streaming["waiting"], 100 * streaming["fullest"] / blocking["fullest"]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rate", default="20mbit", help="of each link, for `links` (default: 20mbit)")
    parser.add_argument("--fragments", default=4, type=int)
    parser.add_argument("--delay", default=2, type=int, help="fragment_delay, in steps (default: 2)")
    parser.add_argument("--passes", default=16, type=int, help="gradient_accumulation_steps for `links` (default: 16)")
    parser.add_argument("--link-steps", default=160, type=int, help="steps for `links` (default: 160)")
    parser.add_argument("--only", choices=("accuracy", "links"))
    parser.add_argument("--waiting", type=float, help="the most waiting, in percent of the run")
    parser.add_argument("--fullest", type=float, help="the most traffic in a second, in percent of the blocking run's")
    parser.add_argument("--inside", type=pathlib.Path, help="(used by the program itself)")
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}

    def known(key, measure):
        if key not in done:
            done[key] = measure()
            if options.json:
                options.json.write_text(json.dumps(done, indent=1) + "\n")
        return done[key]

    streams = [f"fragments={options.fragments}", f"fragment_delay={options.delay}"]
    missed = []
    if options.only != "links":
        gap = accuracy(options, streams, known)
        if options.points is not None and gap < -options.points:
            missed.append(f"streaming is worse by {-gap:.2f} points")
    if options.only != "accuracy":
        waiting, fullest = links(options, streams, known)
        if options.waiting is not None and waiting > options.waiting:
            missed.append(f"streaming waits for {waiting:.1f} % of the run")
        if options.fullest is not None and fullest > options.fullest:
            missed.append(f"the fullest second has {fullest:.0f} % of the blocking run's traffic")
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
