#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes where compression stops paying on fast links, by rate, threads and parameters, and prints a Markdown table.

    bench/fast_links.py
    bench/fast_links.py --workers 16 --rate 25gbit --rate 100gbit --threads 16 --figures figures.json

Nothing is measured: `sluice estimate` computes each exchange from the speeds of one machine's cores (docs/planning.md). Each
worker and each shard has a link of its own, and a core for each of its threads. The column `ring` is the least time in which a
ring of workers can all-reduce dense fp16, with links that are full all the time: 2 (W - 1) / W of the bytes over each link.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODECS = {"`int8`": ("int8", "int8"), "`topk`": ("topk:1%+int4", "topk:3%+int4")}


def ring(workers: int, parameters: int, rate: str) -> float:
    """Returns the milliseconds of a ring's all-reduce of fp16."""
    bits = 2 * (workers - 1) / workers * 16 * parameters
    return 1e3 * bits / (1e9 * float(rate.removesuffix("gbit")))


def exchanges(options: argparse.Namespace, parameters: int, rate: str, threads: int) -> dict[str, float]:
    """Returns the milliseconds of an exchange by codec."""
    found = {"ring": ring(options.workers, parameters, rate)}
    for name, (up, down) in CODECS.items():
        command = [options.build / "sluice", "estimate", "--json", "--parameters", parameters, "--link-rate", rate]
        command += ["--threads", threads, "--workers", options.workers, "--shards", options.shards, "--placement", "separate"]
        command += ["--spec", up, "--down-spec", down, *(["--figures", options.figures] if options.figures else [])]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr.strip())
        columns = {column["name"]: column["exchange_ms"] for column in json.loads(done.stdout)["estimates"]}
        found["`fp16`"] = columns["dense fp16"]
        found[name] = columns["as given"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rate", action="append", help="rates of links, such as 40gbit (default: 1, 10, 25 and 100 Gb/s)")
    parser.add_argument("--threads", action="append", type=int, help="threads of each process (default: 1 and 4)")
    parser.add_argument("--parameters", action="append", type=int, help="sizes of models (default: 25 million and a billion)")
    parser.add_argument("--figures", type=pathlib.Path, help="figures of a machine, from sluice estimate --calibrate")
    options = parser.parse_args()
    names = ["ring", "`fp16`", *CODECS]
    print("| parameters | link | threads | " + " | ".join(names) + " | fastest |")
    print("|---" * (len(names) + 4) + "|")
    for parameters in options.parameters or [25_600_000, 1_000_000_000]:
        for rate in options.rate or ["1gbit", "10gbit", "25gbit", "100gbit"]:
            for threads in options.threads or [1, 4]:
                times = exchanges(options, parameters, rate, threads)
                fastest = min(names, key=lambda name: times[name])
                cells = [f"{parameters / 1e6:,.0f} M", rate.replace("gbit", " Gb/s"), str(threads), *(f"{times[name]:,.0f}" for name in names), fastest]
                print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
