#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a change: jobs of sluice-server and synthetic_worker without computation, from two builds, run in turn.

usage: builds.py --before FOLDER [options]
  --before FOLDER       programs before the change
  --bin FOLDER          programs after the change (build/release/bin)
  --parameters N        (1 million)
  --uplink, --downlink  specs (topk:1%+int4, int8)
  --steps N, --pairs N  steps per turn (200), pairs of turns (12)
  --limit PERCENT       exits 1 if the median of processor seconds exceeds the old programs' by more than this
  --json FILE           all figures

Each pair of turns gives a ratio of times and a ratio of processor seconds. Other programs on the machine disturb the latter
less. The output line has the medians and the quartiles.
"""
import copy
import pathlib
import tempfile

import survival
import ab_runner


def measure(options, folder):
    before = copy.copy(options)
    before.bin = options.before
    kinds = {"turns": True, "shards": 1}
    with survival.Job(options, folder / "now", options.parameters, **kinds) as job, \
            survival.Job(before, folder / "before", options.parameters, **kinds) as old:
        return ab_runner.compare(options, job, old)


def main():
    parser = ab_runner.parser_of(__doc__)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options, pathlib.Path(folder))
    ab_runner.conclude(options, row)


if __name__ == "__main__":
    main()
