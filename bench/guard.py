#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with five workers, one of which is broken from step 100 on, with and without a guard, and compares the test accuracies.

usage: bench/guard.py [--seeds 1,2,3] [--faults large,nan,flipped] [--policies off,clip,skip] [--steps 470] [--json FILE]

Needs the Python package with PyTorch and NumPy (scripts/test-python.sh makes build/python-venv), and Debian's package dataset-fashion-mnist.
The broken worker multiplies its gradients by 100 (large), sends NaN (nan) or the negative of its gradients (flipped).
Differences are in points of accuracy to runs of the four good workers alone. With --json, the program does not repeat runs that the file contains.
"""
import argparse
import json
import pathlib
import statistics
import sys

import python_job

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAULTS = {"none": lambda gradient: gradient, "large": lambda gradient: 100 * gradient, "nan": lambda gradient: gradient * float("nan"),
          "flipped": lambda gradient: -gradient}
BEGIN = 100  # The first step with the fault.
BROKEN = 2   # Rank of the broken worker.


def work(options):
    """One worker. Rank 0 writes the accuracy."""
    sys.path.insert(0, str(ROOT / "examples/python"))
    import fashion_mnist
    import sluice
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    model = fashion_mnist.new_model()
    step = [0]
    if options.fault != "none" and dist.get_rank() == BROKEN:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: FAULTS[options.fault](gradient) if step[0] >= BEGIN else gradient)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    guard = {} if options.policy == "off" else {"guard": {"policy": options.policy}}
    session = sluice.attach(wrapped, optimizer, uplink="topk:1%+int4", downlink="topk:3%+int4",
                            job={"seed": options.seed, **guard}, http=options.http)
    train, test = (fashion_mnist.read_part(fashion_mnist.FOLDER, part) for part in ("train", "t10k"))
    sampler = torch.utils.data.DistributedSampler(train, seed=options.seed)
    loader = torch.utils.data.DataLoader(train, batch_size=64, sampler=sampler, drop_last=True)
    while step[0] < options.steps:
        sampler.set_epoch(step[0])
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(wrapped(images), labels).backward()
            optimizer.step()
            step[0] += 1
            if step[0] == options.steps:
                break
    if dist.get_rank() == 0:
        accuracy = 100 * fashion_mnist.accuracy(model, test)
        options.report.write_text(json.dumps({"accuracy": accuracy if accuracy == accuracy else 0}))
    session.close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--seeds", default="1,2,3", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--faults", default="large,nan,flipped", type=words)
    parser.add_argument("--policies", default="off,clip,skip", type=words)
    parser.add_argument("--steps", default=470, type=int, help="of each job (default: 470, two epochs of five workers)")
    python_job.add_options(parser)
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    parser.add_argument("--policy", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    results = python_job.Results(options.json)

    def accuracies(workers, fault, policy):
        flags = ["--fault", fault, "--policy", policy, "--steps", str(options.steps)]
        return [results.get(f"{workers} workers, {fault}, {policy}, seed {seed}, {options.steps} steps",
                            lambda seed=seed: python_job.run(options, __file__, workers, seed, flags))["accuracy"] for seed in options.seeds]

    base = accuracies(4, "none", "off")
    print(f"four good workers: {statistics.mean(base):.2f} %; differences in points\n")
    print("| fifth worker | " + " | ".join(f"policy {policy}" for policy in options.policies) + " |")
    print("|---" * (len(options.policies) + 1) + "|")
    for fault in ["none", *options.faults]:
        row = []
        for policy in options.policies:
            gaps = [value - good for value, good in zip(accuracies(5, fault, policy), base)]
            row.append(f"{statistics.mean(gaps):+.2f} ({min(gaps):+.2f} to {max(gaps):+.2f})")
        print(f"| {fault} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
