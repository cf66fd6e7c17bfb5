#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that code which runs on a GPU calls only functions of the standard library that nvcc compiles correctly.

nvcc compiles other functions without a warning to code that stops the kernel or returns 0 (base/device_functions.h), and CI has no GPU.

usage: device_functions_test.py ROOT
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
KERNELS = "compress/gpu/kernels"
# Types, constants, and functions that ran on an H100.
KNOWN = {"array", "bit_cast", "integer_sequence", "make_integer_sequence", "numeric_limits", "size", "sqrt", "vector"}
# Other uses: the replacements themselves, and code that runs on the host alone.
ALSO = {
    "base/device_functions.h": {"bit_width", "popcount"},
    f"{KERNELS}/block.h": {"fill", "max", "max_element"},
}
HOST_ONLY = {f"{KERNELS}/{name}" for name in ("device.h", "host_device.h", "run_work.h", "work.h")}


def included(path):
    """Returns the headers of the repository that a header includes, itself among them."""
    found, new = set(), [path]
    while new:
        path = new.pop()
        if path not in found and (ROOT / path).exists():
            found.add(path)
            new += re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.M)
    return found


kernels = [f"{KERNELS}/{path.name}" for path in (ROOT / KERNELS).glob("*.h")]
headers = set().union(*(included(path) for path in kernels if path not in HOST_ONLY))
problems = []
for header in sorted(headers):
    for number, line in enumerate((ROOT / header).read_text().splitlines(), 1):
        for name in re.findall(r"\bstd::(\w+)", line.split("//")[0]):
            if name not in KNOWN | ALSO.get(header, set()):
                problems.append(f"{header}:{number}: std::{name}: use or extend base/device_functions.h, and try it on a GPU")
if len(headers) < 20:
    problems.append(f"{len(headers)} headers found")
if problems:
    sys.exit("\n".join(problems))
print(f"{len(headers)} headers call only functions that are known to work in device code")
