#!/usr/bin/env python3
"""What looking at a job costs: two jobs of sluice-server and synthetic_worker that compute nothing take turns. Of one every
process serves metrics, all of which are scraped once a second, and workers measure what their codec loses; nobody looks at the
other.

usage: observed.py [options]
  --bin FOLDER          of the programs (build/release/bin)
  --parameters N        (1 million)
  --quality-every N     steps in which each chunk is measured once (100)
  --period SECONDS      between scrapes (1)
  --uplink, --downlink  specs (topk:1%+int4, int8)
  --steps N, --pairs N  of a turn (200), turns of each (12)
  --traced              the observed job writes traces as well
  --limit PERCENT       exits 1 if the median of processor seconds is more above the plain job's
  --json FILE           all figures

Each pair of turns gives a quotient of times and one of processor seconds, which other programs on the machine disturb less; the
line has medians and between what the middle half of them lies.
"""
import pathlib
import subprocess
import tempfile
import threading
import urllib.request

import survival
import turns


class Observed(survival.Job):
    """A job all of whose processes are scraped."""

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
                   "--rank", str(rank), "--parameters", str(self.parameters), "--steps", "1000000", "--turns", "--metrics-listen",
                   f"127.0.0.1:{self.http[1 + rank]}", "--quality-every", str(self.options.quality_every),
                   *self.trace(f"worker-{rank}")]
        return survival.Worker([str(part) for part in command], self.log)

    def trace(self, name):
        return ["--trace", str(self.folder / f"{name}.trace.json")] if self.options.traced else []

    def scrape(self):
        while not self.over.wait(self.options.period):
            for port in self.http:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                        self.scraped += answer.read().count(b"\n")
                except OSError:
                    pass  # Not up yet.

    def end(self):
        self.over.set()
        self.scraper.join()
        super().end()


def measure(options, folder):
    kinds = {"turns": True, "shards": 1}
    with Observed(options, folder / "observed", options.parameters, **kinds) as job, \
            survival.Job(options, folder / "plain", options.parameters, **kinds) as plain:
        row = turns.compare(options, job, plain)
        if not job.scraped:
            raise RuntimeError("nothing was scraped: longer turns")
        return {**row, "scraped_lines": job.scraped}


def main():
    parser = turns.parser_of(__doc__)
    parser.add_argument("--quality-every", type=int, default=100)
    parser.add_argument("--period", type=float, default=1)
    parser.add_argument("--traced", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options, pathlib.Path(folder))
    turns.conclude(options, row)


if __name__ == "__main__":
    main()
