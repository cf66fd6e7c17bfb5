#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that nvcc compiled no kernel to code that stops it. Needs no GPU.

If a kernel refers to a constant that has no address on a GPU, nvcc writes a `trap` instruction and no warning.

usage: trap_check.py PTX_FILE
"""
import re
import subprocess
import sys

kernel, kernels, traps = None, 0, []
with open(sys.argv[1], encoding="utf-8") as ptx:
    for line in ptx:
        if name := re.search(r"\.entry (\w+)", line):
            kernel = name.group(1)
            kernels += 1
        elif re.match(r"\s*(trap|brkpt);", line) and kernel not in traps:
            traps.append(kernel)
if traps or not kernels:
    names = subprocess.run(["c++filt", *(name or "?" for name in traps)], capture_output=True, text=True, check=True).stdout if traps else ""
    sys.exit(f"{kernels} kernels, and these stop themselves (base/device_functions.h says why):\n{names}")
print(f"{kernels} kernels, and none stops itself")
