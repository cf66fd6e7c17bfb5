#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains while the links change, once for each kind of compression: with plans (`control.policy`) and with fixed codecs.

usage: bench/control.py [--rates 100mbit,10mbit,100mbit] [--seconds 20] [--target 0.6] [--choices auto,fp16,...] [--out FOLDER]

The server and each worker have a network namespace behind a link that is shaped in both directions (bench/shaped.sh). All links have the
same rate, which changes every --seconds. Each choice trains examples/fashion-mnist.yaml from the start, with a constant learning rate, until
the last rate's time is over. The output has the time at which the loss (mean of the workers, exponential mean over steps) was first below the
target, the final loss, and the number of steps. FOLDER gets a CSV file of each choice and one plot (control.svg, control.png) of link rate,
ratio, step time and loss. Exits 77 if no links can be made.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from seed_sweep import ROOT

SHAPED = ROOT / "bench/shaped.sh"
JOB = ROOT / "examples/fashion-mnist.yaml"
PORT, HTTP = 7070, 7071  # In separate namespaces.
EVERY = 0.2  # Seconds between two status requests.
START_LIMIT = 120  # Seconds.
SMOOTHED = 20  # Steps in the mean of the loss.
# Arguments of --set.
CHOICES = {
    "auto": ["control={policy: auto}"],
    "bandwidth": ["control={policy: bandwidth}"],
    "bandwidth-topk": ["control={policy: bandwidth, candidates: ['topk:1%+int4']}"],
    "none": ["compression.uplink=none", "compression.downlink=none"],
    "fp16": ["compression.uplink=fp16", "compression.downlink=fp16"],
    "int8": ["compression.uplink=int8", "compression.downlink=int8"],
    "int4": ["compression.uplink=int4", "compression.downlink=int4"],
    "ternary": ["compression.uplink=ternary:0.5", "compression.downlink=ternary:0.5"],
    "topk": ["compression.uplink=topk:1%+int4", "compression.downlink=topk:3%+int4"],
}
COLUMNS = ["seconds", "rate", "step", "loss", "smoothed", "step_seconds", "ratio_up", "ratio_down", "plan", "codecs"]
ROWS = [("rate", "link, Mb/s", True), ("ratio_up", "ratio up", True), ("step_seconds", "a step, s", True), ("smoothed", "loss", False)]


def megabits(rate):
    return float(rate[:-4]) * {"kbit": 1e-3, "mbit": 1, "gbit": 1e3}[rate[-4:]]


def parser_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rates", default="100mbit,10mbit,100mbit", help="rates of every link, one after the other (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="duration of each rate (default: 20)")
    parser.add_argument("--target", type=float, default=0.6, metavar="LOSS", help="(default: 0.6)")
    parser.add_argument("--choices", default="auto,fp16,int8,ternary,topk", help=f"among {', '.join(CHOICES)} (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes the job, for all choices")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench-control", metavar="FOLDER")
    return parser


class Run:
    """One choice, run inside the namespaces with the links."""

    def __init__(self, options, name, folder):
        self.rates, self.seconds, self.folder = options.rates.split(","), options.seconds, folder
        self.settings = [f"workers={options.workers}", "shards=1", "steps=10000000", "lr_schedule={name: constant}", "data.test_limit=500",
                         "server.lease_timeout=120s", *options.set, *CHOICES[name]]
        self.processes = []
        host = os.environ["SHAPED_SERVER_HOSTS"]
        self.status = f"http://{host}:{HTTP}/status.json"
        self.rate(self.rates[0])
        self.start("s0", options.bin / "sluice-server", "--listen", f"{host}:{PORT}", "--http-listen", f"{host}:{HTTP}", "--allow-anonymous")
        for rank in range(options.workers):
            self.start(f"w{rank}", options.bin / "sluice-worker", "--rank", str(rank), "--coordinator", f"{host}:{PORT}", "--threads", "1")

    def rate(self, rate):
        subprocess.run([SHAPED, "--set", rate], check=True)

    def start(self, name, program, *arguments):
        command = ["ip", "netns", "exec", name, str(program), "--job", str(JOB), *arguments]
        for setting in self.settings:
            command += ["--set", setting]
        with (self.folder / f"{name}.log").open("w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def look(self):
        """Status of shard 0, or None before its first answer."""
        if any(process.poll() is not None for process in self.processes):
            logs = "".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))
            sys.exit(f"a process has ended:\n{logs}")
        try:
            with urllib.request.urlopen(self.status, timeout=10) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError, urllib.error.URLError):
            return None

    def points(self):
        """Rows of COLUMNS, from the start of the job on."""
        start_by = time.monotonic() + START_LIMIT
        while not ((status := self.look()) and status["this_shard"]["step"] > 0):
            if time.monotonic() > start_by:
                sys.exit(f"the job did not start within {START_LIMIT} s: {status}")
            time.sleep(0.1)
        began, now_at, rows = time.monotonic(), 0, []
        before, smoothed = (0.0, status["this_shard"]), None
        while (seconds := time.monotonic() - began) < self.seconds * len(self.rates):
            if int(seconds / self.seconds) > now_at:
                now_at = int(seconds / self.seconds)
                self.rate(self.rates[now_at])
            time.sleep(EVERY)
            status = self.look()
            if status is None:
                continue
            at, shard = time.monotonic() - began, status["this_shard"]
            steps = shard["step"] - before[1]["step"]
            losses = [worker["loss"] for worker in status["workers"] if worker["step"] > 0 and worker["loss"] is not None]
            if steps <= 0 or not losses:
                continue
            loss = sum(losses) / len(losses)
            kept = math.exp(-steps / SMOOTHED)
            smoothed = loss if smoothed is None else kept * smoothed + (1 - kept) * loss

            def ratio(way):
                sent = shard[f"{way}_bytes"] - before[1][f"{way}_bytes"]
                return (shard[f"{way}_uncompressed_bytes"] - before[1][f"{way}_uncompressed_bytes"]) / sent if sent > 0 else None

            compression = status["compression"]
            plan = next((plan for plan in compression["plans"] if plan["id"] == compression["plan"]), None)
            rows.append([round(at, 2), megabits(self.rates[now_at]), shard["step"], loss, smoothed, (at - before[0]) / steps,
                         ratio("uplink"), ratio("downlink"), compression["plan"],
                         plan["what"] if plan else f"{compression['uplink']} up, {compression['downlink']} down"])
            before = (at, shard)
        return rows


def inside(options):
    for name in options.choices.split(","):
        with tempfile.TemporaryDirectory(prefix="control-") as folder:
            run = Run(options, name, pathlib.Path(folder))
            try:
                rows = run.points()
                log = (pathlib.Path(folder) / "s0.log").read_text()
            finally:
                run.end()
        with (options.out / f"{name}.csv").open("w", newline="") as out:
            csv.writer(out).writerows([COLUMNS, *rows])
        (options.out / f"{name}.log").write_text(log)
        print(f"{name}: {rows[-1][2] if rows else 0} steps", file=sys.stderr, flush=True)


def read(path):
    with path.open(newline="") as text:
        return [{key: float(value) if value and key != "codecs" else None for key, value in row.items()} for row in csv.DictReader(text)]


def reached(rows, target):
    return next((row["seconds"] for row in rows if row["smoothed"] is not None and row["smoothed"] <= target), None)


def table(runs, target):
    print(f"| choice | loss {target:g} after | loss at the end | steps |\n|---|---|---|---|")
    for name, rows in runs.items():
        at = reached(rows, target)
        print(f"| `{name}` | {'never' if at is None else f'{at:.1f} s'} | {rows[-1]['smoothed']:.3f} | {rows[-1]['step']:.0f} |")


def draw(runs, folder):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(len(ROWS), 1, sharex=True, figsize=(9, 10), layout="constrained")
    for axis, (column, label, logarithmic) in zip(axes, ROWS):
        for name, rows in runs.items():
            if column == "rate" and name != next(iter(runs)):
                continue  # The link rate is equal in all runs.
            style = {"linewidth": 2.4, "zorder": 3} if name in ("auto", "bandwidth") else {"linewidth": 1.1}
            axis.plot([row["seconds"] for row in rows], [row[column] if row[column] is not None else math.nan for row in rows],
                      label=None if column == "rate" else name, drawstyle="steps-post" if column == "rate" else "default",
                      color="black" if column == "rate" else None, **style)
        axis.set_ylabel(label)
        if logarithmic:
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
    axes[-1].legend(loc="upper right", fontsize=8, ncols=3)
    axes[-1].set_xlabel("seconds of training")
    axes[-1].set_ylim(top=2.5)
    figure.suptitle("A job whose links change, by how it compresses")
    figure.savefig(folder / "control.svg")
    figure.savefig(folder / "control.png", dpi=80)


def main():
    options = parser_of().parse_args()
    unknown = [name for name in options.choices.split(",") if name not in CHOICES]
    if unknown:
        parser_of().error(f"--choices: {', '.join(unknown)}: there are {', '.join(CHOICES)}")
    options.bin, options.out = options.bin.resolve(), options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if "SHAPED_RATE" in os.environ:
        inside(options)
        return 0
    done = subprocess.run([SHAPED, "--workers", str(options.workers), "--shards", "1", "--rate", options.rates.split(",")[0], "--exec",
                           sys.executable, __file__, *sys.argv[1:]])
    if done.returncode != 0:
        return done.returncode
    runs = {name: rows for name in options.choices.split(",") if (rows := read(options.out / f"{name}.csv"))}
    table(runs, options.target)
    draw(runs, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
