#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the demo's results. Exits with 1 if they fall short of the README's promises. usage: demo_summary.py FOLDER"""
import json
import pathlib
import sys


def main():
    folder = pathlib.Path(sys.argv[1])
    run = json.loads((folder / "compressed.json").read_text())
    promises = [
        (f"test accuracy        {run['test_accuracy']:8.2%}   (promised: at least 88 %)", run["test_accuracy"] >= 0.88),
        (f"fewer bytes up       {run['ratio_up']:7.0f} x   (promised: at least 100 x)", run["ratio_up"] >= 100),
        (f"fewer bytes down     {run['ratio_down']:7.0f} x   (promised: at least 40 x)", run["ratio_down"] >= 40),
    ]
    print("Results of the demo")
    kept = True
    for text, holds in promises:
        kept = kept and holds
        print(f"  {text}{'' if holds else '   NOT REACHED'}")
    fp16, compressed = folder / "link-fp16.json", folder / "link-compressed.json"
    if fp16.exists() and compressed.exists():
        slow, fast = json.loads(fp16.read_text()), json.loads(compressed.read_text())
        ratio = slow["step_ms"]["p50"] / fast["step_ms"]["p50"]
        print(f"  step at 100 Mbit/s   {slow['step_ms']['p50']:.0f} ms dense fp16, {fast['step_ms']['p50']:.0f} ms compressed: "
              f"{ratio:.1f} x faster (this machine trains all workers on its own cores)")
    print(f"Reports are in {folder}/.")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
