#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the additional time of an exchange per step: one worker and one server, with and without exchanges, in turn.

The run without exchanges uses mode local_sgd, whose only exchange is in the run's last step. The additional time is encoding,
decoding and waiting that backward does not hide. On a GPU the goal is 3 % with encode_location=device; an H100 needed 40 % (docs/gpu.md).

usage: bench/encode_overhead.py [--model resnet50] [--uplink topk:1%] [--encode-location device,host] [--set KEY=VALUE ...] [--pairs 5]
"""
import argparse
import pathlib
import statistics
import tempfile

from seed_sweep import ROOT, train


def job_text(options):
    return (f"name: exposed\nworkers: 1\nmodel: {{name: {options.model}}}\ndata: {{format: synthetic_cifar}}\n"
            f"batch_size_per_worker: {options.batch}\nsteps: {options.steps}\noptimizer: {{lr: 0.01}}\n"
            f"compression: {{uplink: '{options.uplink}', downlink: int8}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--uplink", default="topk:1%")
    parser.add_argument("--encode-location", default="device,host", type=lambda text: text.split(","),
                        help="separated by commas (default: device,host)")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a change of the job, for all runs")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    options = parser.parse_args()
    alone = ["mode=local_sgd", f"local_steps={options.steps}"]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(job_text(options))

        def step_ms(changes):
            return train(options, str(job), changes, 1, dense=False)["step_ms"]["p50"]

        for where in options.encode_location:
            above, without = [], []
            for pair in range(options.pairs):
                turn = {}
                for changes in (alone, []) if pair % 2 else ([], alone):
                    turn[bool(changes)] = step_ms([*changes, f"encode_location={where}"])
                without.append(turn[True])
                above.append(100 * (turn[False] / turn[True] - 1))
            print(f"{options.model}, {options.uplink}, encode_location={where}: {statistics.median(above):+.1f} % of a step of "
                  f"{statistics.median(without):.1f} ms ({min(above):+.1f} to {max(above):+.1f}, {options.pairs} pairs)",
                  flush=True)


if __name__ == "__main__":
    main()
