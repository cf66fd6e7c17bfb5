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
import copy
import pathlib
import tempfile

import survival
import turns


def measure(options, folder):
    before = copy.copy(options)
    before.bin = options.before
    kinds = {"turns": True, "shards": 1}
    with survival.Job(options, folder / "now", options.parameters, **kinds) as job, \
            survival.Job(before, folder / "before", options.parameters, **kinds) as old:
        return turns.compare(options, job, old)


def main():
    parser = turns.parser_of(__doc__)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(options, pathlib.Path(folder))
    turns.conclude(options, row)


if __name__ == "__main__":
    main()
