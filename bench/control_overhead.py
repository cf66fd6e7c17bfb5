#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of control: two jobs of sluice-server and synthetic_worker without computation run in turn. In one of them, shard 0 passes
every step's measurements to the policy `auto`. It may choose only the codec that both jobs use, so that both send the same traffic.

usage: control_overhead.py [options]
  --bin FOLDER          programs (build/release/bin)
  --parameters N        (1 million)
  --uplink SPEC         for both directions (topk:1%+int4); --downlink is ignored
  --steps N, --pairs N  steps per turn (200), pairs of turns (12)
  --limit PERCENT       exits 1 if the median of processor seconds exceeds the plain job's by more than this
  --json FILE           all figures

Each pair of turns gives a ratio of times and a ratio of processor seconds. Other programs on the machine disturb the latter
less. The output line has the medians and the quartiles. Both jobs measure their links.
"""
import pathlib
import tempfile

import survival
import ab_runner

CONTROL = 'control: {{policy: auto, candidates: ["{uplink}"]}}\n'


def main():
    options = ab_runner.parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder, kinds = pathlib.Path(folder), {"turns": True, "shards": 1}
        options.downlink = options.uplink
        with survival.Job(options, folder / "controlled", options.parameters, more=CONTROL.format(uplink=options.uplink), **kinds) as job, \
                survival.Job(options, folder / "plain", options.parameters, **kinds) as plain:
            ab_runner.conclude(options, ab_runner.compare(options, job, plain))


if __name__ == "__main__":
    main()
