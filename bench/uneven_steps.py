#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with four workers, one of which takes four times as many local steps as the others, with and without weights.

usage: bench/uneven_steps.py [--seeds 1,2,3] [--samples 240000] [--local-steps 20] [--points 1] [--json FILE]

Needs the Python package with PyTorch and NumPy (scripts/test-python.sh makes build/python-venv), and Debian's package dataset-fashion-mnist.
All jobs train equally many samples in all. `equal` has four workers that take equally many steps, and differences are in points of
accuracy to it. With --json, the program does not repeat runs that the file contains.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

import python_job

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKERS = 4
BATCH = 64
# Steps of each worker in a round, as multiples of --local-steps, and how contributions count.
CASES = {"equal": ([1, 1, 1, 1], "equal"), "1:1:1:4, weighted": ([1, 1, 1, 4], "tokens"), "1:1:1:4, unweighted": ([1, 1, 1, 4], "equal")}


def work(options):
    """One worker. Rank 0 writes the accuracy."""
    sys.path.insert(0, str(ROOT / "examples/python"))
    import fashion_mnist
    import sluice
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    rank = int(os.environ["RANK"])
    multiples, weights = CASES[options.case]
    rounds = round(options.samples / (BATCH * options.local_steps * sum(multiples)))
    steps = multiples[rank] * options.local_steps
    model = fashion_mnist.new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # Ranks may take different numbers of steps only with these weights. Without weights, each contribution claims one sample in one step.
    job = {"seed": options.seed, "outer_optimizer": "average", "merge_weights": "tokens"}
    session = sluice.init(local_steps=options.local_steps, uplink="int8", downlink="int8", job=job, quiet=True)
    train, test = (fashion_mnist.read_part(fashion_mnist.FOLDER, part) for part in ("train", "t10k"))
    # Each worker draws its own samples from all data, so that the weights alone differ.
    generator = torch.Generator().manual_seed(1000 * options.seed + rank)
    sampler = torch.utils.data.RandomSampler(train, replacement=True, num_samples=rounds * steps * BATCH, generator=generator)
    loader = torch.utils.data.DataLoader(train, batch_size=BATCH, sampler=sampler)
    block = sluice.LocalSGD(session, model, optimizer, sync_every=steps, samples_per_step=BATCH)
    if weights == "equal":
        session.set_work = lambda samples, steps: type(session).set_work(session, 1, 1)
    with block:
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    if rank == 0:
        options.report.write_text(json.dumps({"accuracy": 100 * fashion_mnist.accuracy(model, test), "exchanges": session.step}))
    session.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--samples", default=240_000, type=int, help="of all workers together (default: 240000, four epochs)")
    parser.add_argument("--local-steps", default=20, type=int, help="of a slow worker in each round (default: 20)")
    parser.add_argument("--points", type=float, help="exit with 1 if the weighted job is worse by more than this, in points")
    python_job.add_options(parser)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    results = python_job.Results(options.json)
    rows = {}
    for case in CASES:
        rows[case] = []
        for seed in options.seeds:
            flags = ["--case", case, "--samples", str(options.samples), "--local-steps", str(options.local_steps)]
            report = results.get(f"{case}, seed {seed}, {options.samples} samples, {options.local_steps} steps",
                                 lambda: python_job.run(options, __file__, WORKERS, seed, flags))
            rows[case].append(report["accuracy"])
    print("| steps of the workers | accuracy | difference |\n|---|---|---|")
    for case, values in rows.items():
        gaps = [value - base for value, base in zip(values, rows["equal"])]
        print(f"| {case} | {statistics.mean(values):.2f} % | {statistics.mean(gaps):+.2f} ({min(gaps):+.2f} to {max(gaps):+.2f}) |")
    gap = statistics.mean(rows["1:1:1:4, weighted"]) - statistics.mean(rows["equal"])
    if options.points is not None and gap < -options.points:
        sys.exit(f"the weighted job is worse by {-gap:.2f} points, more than {options.points}")


if __name__ == "__main__":
    main()
