#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of metrics: two jobs of sluice-server and synthetic_worker without computation run in turn. In one of them,
every process serves metrics, which are scraped once a second, and workers measure the losses of their codec. The other job has
no metrics.

usage: metrics_overhead.py [options]
  --bin FOLDER          programs (build/release/bin)
  --parameters N        (1 million)
  --quality-interval N  steps in which each chunk is measured once (100)
  --period SECONDS      between scrapes (1)
  --uplink, --downlink  specs (topk:1%+int4, int8)
  --steps N, --pairs N  steps per turn (200), pairs of turns (12)
  --traced              the observed job also writes traces
  --limit PERCENT       exits 1 if the median of processor seconds exceeds the plain job's by more than this
  --json FILE           all figures

Each pair of turns gives a ratio of times and a ratio of processor seconds. Other programs on the machine disturb the latter
less. The output line has the medians and the quartiles.
"""
import pathlib
import subprocess
import tempfile
import threading
import urllib.request

import survival
import ab_runner


class Observed(survival.Job):
    """A job in which all processes are scraped."""

    def __init__(self, options, folder, parameters, **kinds):
        self.http = [survival.free_port() for _ in range(3)]  # A shard and two workers.
        self.scraped, self.over = 0, threading.Event()
        super().__init__(options, folder, parameters, **kinds)
        self.scraper = threading.Thread(target=self.scrape, daemon=True)
        self.scraper.start()

    def start_shard(self, i):
        command = [self.options.bin / "sluice-server", "--job", self.path, "--shard", str(i), "--listen",
                   f"127.0.0.1:{self.ports[i]}", "--http-listen", f"127.0.0.1:{self.http[i]}", *self.trace(f"shard-{i}")]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def start_worker(self, rank):
        command = [self.options.bin / "synthetic_worker", "--job", self.path, "--coordinator", f"127.0.0.1:{self.ports[0]}",
                   "--rank", str(rank), "--parameters", str(self.parameters), "--steps", "1000000", "--turns", "--http-listen",
                   f"127.0.0.1:{self.http[1 + rank]}", "--quality-interval", str(self.options.quality_interval),
                   *self.trace(f"worker-{rank}")]
        return survival.Worker([str(part) for part in command], self.log)

    def trace(self, name):
        return ["--trace-file", str(self.folder / f"{name}.trace.json")] if self.options.traced else []

    def scrape(self):
        while not self.over.wait(self.options.period):
            for port in self.http:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                        self.scraped += answer.read().count(b"\n")
                except OSError:
                    pass  # Not started yet.

    def end(self):
        self.over.set()
        self.scraper.join()
        super().end()


def measure(options, folder):
    kinds = {"turns": True, "shards": 1}
    with Observed(options, folder / "observed", options.parameters, **kinds) as job, \
            survival.Job(options, folder / "plain", options.parameters, **kinds) as plain:
        row = ab_runner.compare(options, job, plain)
        if not job.scraped:
            raise RuntimeError("nothing was scraped: use longer turns")
        return {**row, "scraped_lines": job.scraped}


def main():
    parser = ab_runner.parser_of(__doc__)
    parser.add_argument("--quality-interval", type=int, default=100)
    parser.add_argument("--period", type=float, default=1)
    parser.add_argument("--traced", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options, pathlib.Path(folder))
    ab_runner.conclude(options, row)


if __name__ == "__main__":
    main()
