#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every #include follows tools/layers.txt. CMake links libraries but does not prevent an include.

usage: check_layers.py ROOT   exits 1 and names each include that is not allowed.
"""
import pathlib
import re
import sys

FREE = ("tests", "bench", "examples", "cli")
STANDARD = re.compile(r"^[a-z_0-9]+$|^[a-z_0-9]+\.h$|^(sys|linux|netinet|arpa|net)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
OUTSIDE = {"zlib.h": "zlib", "png.h": "png",
           "turbojpeg.h": "turbojpeg", "cuda_runtime.h": "cuda"}


def upward(layers):
    """Yields rows that name a row below them. A folder and its subfolders count as one."""
    order = list(layers)
    for at, layer in enumerate(order):
        for other in sorted(layers[layer]):
            if other in layers and order.index(other) > at and not layer.startswith(other + "/"):
                yield f"tools/layers.txt: {layer} may include {other}, which is above it"


def read_layers(path):
    layers = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            layer, _, allowed = line.partition(":")
            layers[layer.strip()] = set(allowed.split())
    return layers


def room_of(path, layers):
    """Returns the longest row that is a folder above `path`."""
    folder = path.rpartition("/")[0]
    while folder and folder not in layers:
        folder = folder.rpartition("/")[0]
    return folder


def target_of(include, layers, root):
    if include in OUTSIDE:
        return OUTSIDE[include]
    if (root / "include" / include).exists():
        return "include/sluice"
    if include.startswith("sluice/"):
        return "proto"
    if (root / include).exists():
        return room_of(include, layers) or include.split("/")[0]
    if STANDARD.match(include):
        return None
    return include.split("/")[0]


def main():
    root = pathlib.Path(sys.argv[1])
    layers = read_layers(root / "tools/layers.txt")
    wrong = list(upward(layers))
    files = 0
    for top in sorted({layer.split("/")[0] for layer in layers}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh", ".proto"):
                continue
            name = path.relative_to(root).as_posix()
            layer = room_of(name, layers)
            if not layer and name.startswith(FREE):
                continue
            files += 1
            if path.suffix == ".proto":
                continue
            for _, include in INCLUDE.findall(path.read_text()):
                target = target_of(include, layers, root)
                if target is not None and target not in layers.get(layer, set()):
                    wrong.append(f"{name}: includes {include}, but {layer} may not include {target}")
    for line in wrong:
        print(line)
    print(f"{files} files checked, {len(wrong)} includes against tools/layers.txt")
    if files == 0:
        print("no files found: wrong root?")
    return 1 if wrong or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
