#!/usr/bin/env python3
"""What control costs: two jobs of sluice-server and synthetic_worker that compute nothing take turns. Shard 0 of one hands every step's
measurements to the policy `auto`, which may choose the codec that both jobs have and no other, so that both send alike.

usage: controlled.py [options]
  --bin FOLDER          of the programs (build/release/bin)
  --parameters N        (1 million)
  --uplink SPEC         both ways (topk:1%+int4); --downlink is not looked at
  --steps N, --pairs N  of a turn (200), turns of each (12)
  --limit PERCENT       exits 1 if the median of processor seconds is more above the plain job's
  --json FILE           all figures

Each pair of turns gives a quotient of times and one of processor seconds, which other programs on the machine disturb less; the
line has medians and between what the middle half of them lies. Links are measured in both jobs.
"""
import pathlib
import tempfile

import survival
import turns

CONTROL = 'control: {{policy: auto, candidates: ["{uplink}"]}}\n'


def main():
    options = turns.parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder, kinds = pathlib.Path(folder), {"turns": True, "shards": 1}
        options.downlink = options.uplink
        with survival.Job(options, folder / "controlled", options.parameters, more=CONTROL.format(uplink=options.uplink), **kinds) as job, \
                survival.Job(options, folder / "plain", options.parameters, **kinds) as plain:
            turns.conclude(options, turns.compare(options, job, plain))


if __name__ == "__main__":
    main()
