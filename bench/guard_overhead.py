#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a guard: two jobs of sluice-server and synthetic_workers without computation run in turn. In one of them, the shard
compares the contributions (guard.policy skip). No worker is broken.

usage: guard_overhead.py [options]
  --bin FOLDER          programs (build/release/bin)
  --parameters N        (8 million)
  --workers N           (4)
  --uplink, --downlink SPEC   (topk:1%+int4, int8)
  --starts N            how often both jobs are started (8)
  --steps N, --pairs N  steps per turn (50), pairs of turns in each start (4)
  --limit PERCENT       exits 1 if the median of the shard's processor seconds exceeds the plain job's by more than this
  --alike               compare two jobs that are alike
  --json FILE           all figures

Each pair of turns gives a ratio of times and a ratio of the shard's processor seconds, which include gRPC. Each start gives the medians of
its pairs. The output line has the means of the starts, and their extremes. --alike compares two jobs without a guard, which shows how far
the means can be trusted.
"""
import survival
import ab_runner


class ShardTimes(survival.Job):
    """A job whose processor seconds are those of its shard."""

    def start_workers(self, count=None):
        super().start_workers(count or self.options.workers)

    def cpu(self):
        return sum(survival.cpu_of(process.pid) for process in self.shards)


def main():
    parser = ab_runner.parser_of(__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--alike", action="store_true")
    parser.set_defaults(parameters=8_000_000, steps=50, pairs=4)
    options = parser.parse_args()

    def job(guard):
        return lambda folder: ShardTimes(options, folder, options.parameters, more=guard, turns=True, shards=1, workers=options.workers)

    jobs = (job("" if options.alike else "guard: {policy: skip}\n"), job(""))
    ab_runner.conclude(options, ab_runner.compare_starts(options, jobs))


if __name__ == "__main__":
    main()
