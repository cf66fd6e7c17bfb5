#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `sluice simulate` with real exchanges of 2 to 8 workers over shaped links (bench/shaped.sh), whose computing is a sleep.

usage: simulation_check.py [options]
  --bin FOLDER       programs (build/release/bin)
  --quick            only three set-ups
  --repeats N        measured exchanges of each set-up (12)
  --limit SHARE      exits 1 if a simulated time differs by more from the measured one (0.15)
  --codec-scale X    passed to `sluice simulate`, for a processor of another speed (1)
  --results FILE     keeps measurements here and continues from them (build/simulation_check.json)
  --simulate-only    measures nothing and compares with the kept measurements

A measured time is the median of an exchange, from the first gradient to the last applied mean. With a computing time, both sides count the part of
an exchange after the computing. `load` is the load average before the measurement: with more than 1, the measured times are too long. Exits 77 if no
links can be made.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPED = ROOT / "bench/shaped.sh"
NO_LINKS = 77
TOPK = ("topk:5%+int4", "topk:10%+int4")
# (workers, servers, rate, codecs, computing in milliseconds). The links limit all of them: a set-up whose processes compete for the cores of one
# machine says nothing about a cluster.
QUICK = [(2, 2, "200mbit", ("fp16", "fp16"), 0), (4, 2, "100mbit", TOPK, 0), (2, 1, "100mbit", ("int8", "int8"), 500)]
FULL = QUICK + [(workers, 2, rate, codecs, compute)
                for workers in (2, 4, 8)
                for rate, codecs, compute in (("1gbit", ("fp16", "fp16"), 0), ("200mbit", ("int8", "int8"), 0), ("100mbit", TOPK, 200),
                                              ("100mbit", ("int4", "int4"), 300))]


def name_of(setup):
    workers, servers, rate, (up, down), compute = setup
    return f"{workers}+{servers} {rate} {up} {down} {compute}ms"


def run(command, limit):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=limit, check=False)


def measure(options, setup):
    """The measured time in milliseconds."""
    workers, servers, rate, (up, down), compute = setup
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = ["bash", SHAPED, "--workers", workers, "--shards", servers, "--rate", rate, "--bin", options.bin, "--", "--no-baselines",
                   "--warmup", 4, "--repeats", options.repeats, "--spec", up, "--down-spec", down, "--report", report]
        if compute > 0:
            command += ["--compute-ms", compute]
        load = os.getloadavg()[0]
        done = run(command, 900)
        if done.returncode == NO_LINKS:
            sys.exit(NO_LINKS)
        if done.returncode != 0:
            sys.exit(f"{name_of(setup)}: {done.stderr.strip()}")
        figures = json.loads(report.read_text())
    return {"ms": figures["exposed_ms"] if compute > 0 else figures["exchange_ms"]["median"], "least_ms": figures["exchange_ms"]["min"], "load": load}


def simulate(options, setup):
    """The simulated time in milliseconds."""
    workers, servers, rate, (up, down), compute = setup
    bits = float(rate.removesuffix("gbit")) * 1e9 if rate.endswith("gbit") else float(rate.removesuffix("mbit")) * 1e6
    burst = max(256 << 10, round(bits / 8 * 0.002))  # As bench/shaped.sh sets it.
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = run([options.bin / "sluice", "simulate", "--workers", workers, "--servers", servers, "--link-rate", rate, "--burst", burst, "--set",
                    f"compression.uplink={up}", "--set", f"compression.downlink={down}", "--compute-ms", compute, "--overlap", 1, "--steps", 16,
                    "--codec-scale", options.codec_scale, "--report", report], 300)
        if done.returncode != 0:
            sys.exit(f"{name_of(setup)}: {done.stderr.strip()}")
        return 1000 * json.loads(report.read_text())["wait_s"]["p50"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--limit", type=float, default=0.15)
    parser.add_argument("--codec-scale", type=float, default=1)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build/simulation_check.json")
    parser.add_argument("--simulate-only", action="store_true")
    options = parser.parse_args()
    kept = json.loads(options.results.read_text()) if options.results.exists() else {}
    worst = 0
    print("| set-up | measured, ms | simulated, ms | difference | load |\n|---|---|---|---|---|")
    for setup in QUICK if options.quick else FULL:
        name = name_of(setup)
        if name not in kept and options.simulate_only:
            continue
        if name not in kept:
            kept[name] = measure(options, setup)
            options.results.write_text(json.dumps(kept, indent=1))
        simulated = simulate(options, setup)
        difference = simulated / kept[name]["ms"] - 1
        worst = max(worst, abs(difference))
        print(f"| {name} | {kept[name]['ms']:.1f} | {simulated:.1f} | {100 * difference:+.0f} % | {kept[name]['load']:.1f} |", flush=True)
    return 1 if worst > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
