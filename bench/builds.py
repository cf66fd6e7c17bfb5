#!/usr/bin/env python3
"""What a change costs: jobs of sluice-server and synthetic_worker that compute nothing, of two builds, take turns.

usage: builds.py --before FOLDER [options]
  --before FOLDER       of the programs as they were
  --bin FOLDER          as they are (build/release/bin)
  --parameters N        (1 million)
  --uplink, --downlink  specs (topk:1%+int4, int8)
  --steps N, --pairs N  of a turn (200), turns of each (12)
  --limit PERCENT       exits 1 if the median of processor seconds is more above those of before
  --json FILE           all figures

Each pair of turns gives a quotient of times and one of processor seconds, which other programs on the machine disturb less; the
line has medians and between what the middle half of them lies.
"""
import argparse
import copy
import json
import pathlib
import sys
import tempfile

import survival


def measure(options, folder):
    before = copy.copy(options)
    before.bin = options.before
    kinds = {"turns": True, "shards": 1}
    with survival.Job(options, folder / "now", options.parameters, **kinds) as job, \
            survival.Job(before, folder / "before", options.parameters, **kinds) as old:
        for each in (job, old):
            each.start_workers()
            survival.turn(each, options.steps)  # Residuals fill and pages are touched; not counted.
        wall, cpu, step_ms = [], [], []
        for pair in range(options.pairs):
            of = {each: survival.turn(each, options.steps) for each in ((job, old), (old, job))[pair % 2]}
            wall.append(of[job][0] / of[old][0] - 1)
            cpu.append(of[job][1] / of[old][1] - 1)
            step_ms.append(1000 * of[old][0] / options.steps)
        return {"uplink": options.uplink, "parameters": options.parameters, "time": survival.quartiles(wall),
                "processors": survival.quartiles(cpu), "step_ms": survival.quartiles(step_ms)[0], "load": survival.load()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=survival.HERE.parent / "build/release/bin")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--uplink", default="topk:1%+int4")
    parser.add_argument("--downlink", default="int8")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options, pathlib.Path(folder))
    print(f"{row['uplink']}, {row['parameters'] / 1e6:g} M parameters, steps of {row['step_ms']:.1f} ms: time "
          f"{survival.percent(row['time'])}, processors {survival.percent(row['processors'])}; load {row['load']:.1f}")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))
    if options.limit is not None and row["processors"][0] > options.limit / 100:
        sys.exit(f"builds.py: more than {options.limit:g} % of processor seconds")


if __name__ == "__main__":
    main()
