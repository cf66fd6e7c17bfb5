#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks LibTorch from its wheels into include/ and lib/, as a LibTorch zip would, and its licences into licenses/.

usage: unpack_libtorch.py WHEELS ROOT yes|no     yes: the GPU libraries too
"""
import pathlib
import shutil
import sys
import zipfile

CPU_LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libtorch.so", "libgomp")
CUDA_RUNTIME = ("libcudart.so.13", "libcupti.so.13")


def destination(name, with_gpu):
    if name.endswith("/"):
        return None
    if name.startswith("torch/include/"):
        return name.removeprefix("torch/")
    if name.startswith("torch/lib/"):
        library = name.removeprefix("torch/lib/")
        if library.startswith(CPU_LIBRARIES) or (with_gpu and ".so" in library):
            return "lib/" + library
        return None
    distribution, _, licence = name.partition(".dist-info/licenses/")
    if licence:
        return f"licenses/{distribution}/{licence}"
    if name.startswith("nvidia/") and name.endswith(CUDA_RUNTIME):
        return "lib/" + name.rpartition("/")[2]
    return None


def main():
    wheels, root, with_gpu = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "yes"
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                target = destination(name, with_gpu)
                if target is None:
                    continue
                path = root / target
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, open(path, "wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    for needed in ("lib/libtorch_cpu.so", "lib/libc10.so", *("lib/" + name for name in CUDA_RUNTIME), "licenses"):
        if not (root / needed).exists():
            sys.exit(f"unpack_libtorch: the wheels do not contain {needed}")


if __name__ == "__main__":
    main()
