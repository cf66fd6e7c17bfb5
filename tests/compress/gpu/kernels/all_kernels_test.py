#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every kernel of compress/gpu/kernels has a case in tests/compress/gpu/device/kernel_cases.h.

The test on a GPU runs only kernels that have a case.

usage: all_kernels_test.py ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
cases = (root / "tests/compress/gpu/device/kernel_cases.h").read_text()
headers = "\n".join(path.read_text() for path in sorted((root / "compress/gpu/kernels").glob("*.h")))
kernels = []
for name in re.findall(r"^struct (\w+) \{\n(?:  //[^\n]*\n)*  static constexpr int kThreads\b", headers, re.M):
    # If a kernel has aliases, a case must use each alias.
    kernels += re.findall(rf"^using (\w+) = {name}<", headers, re.M) or [name]
missing = [name for name in kernels if not re.search(rf"\b{name}\b", cases)]
if not kernels or missing:
    sys.exit(f"{len(kernels)} kernels; without a case in tests/compress/gpu/device/kernel_cases.h: {', '.join(missing)}")
print(f"{len(kernels)} kernels have their cases")
