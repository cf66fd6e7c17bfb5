#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the ARM wheel of a release with pip into a folder, and uses its codecs, its programs and a job of two Python workers in QEMU, with
Debian's Python of .deps/arm64 (scripts/arm64.sh). Checks that its files are hardened. Needs a package index.

usage: wheel_arm_test.py WHEEL GRPC     GRPC is the version of gRPC that the programs must name
"""
import pathlib
import sys
import tempfile

from wheel_test import CODECS, SOURCE, check_hardened, run

SYSTEM = SOURCE / ".deps/arm64"
PLATFORMS = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (35, 28, 27, 26, 17)]
WORKER = """
import os, numpy
from sluice import _sluice
wanted = numpy.linspace(-1, 1, 20, dtype=numpy.float32)
weights, mean = numpy.zeros_like(wanted), numpy.empty_like(wanted)
rank = int(os.environ["RANK"])
session = _sluice.Session(open(os.environ["SLUICE_JOB"]).read(), "arm", os.environ["SLUICE_COORDINATOR"], rank, 60.0, os.environ.get("SLUICE_TOKEN_FILE", ""))
session.join([("weights", [20], [1], 0, False)], bytes(32))
random = numpy.random.default_rng(rank)
for _ in range(50):
    x = random.normal(size=(32, 20)).astype(numpy.float32)
    gradient = x.T @ (x @ (weights - wanted)) / 32
    session.submit(0, gradient.ctypes.data, 20, 0, 1.0)
    while session.wait_for(1.0) is None:
        pass
    session.apply(0, mean.ctypes.data, 20, 0, 1.0)
    weights -= 0.1 * mean
assert numpy.abs(weights - wanted).max() < 0.1, weights
session.leave()
session.close()
open(f"{os.environ['OUT']}{rank}", "w").write("trained")
"""


def emulated(path, program):
    """Makes a script at `path` that runs an ARM program, which programs in QEMU can start, too."""
    path.write_text(f"#!/bin/sh\nexec qemu-aarch64-static -L '{SYSTEM}' '{program}' \"$@\"\n")
    path.chmod(0o755)
    return path


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    wheel, grpc = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run("/usr/bin/python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder / "site", *PLATFORMS,
            "--python-version=3.11", "--only-binary=:all:", wheel)
        package = folder / "site/sluice"
        check_hardened(package)
        python = emulated(folder / "python", SYSTEM / "usr/bin/python3.11")
        environment = {"cwd": "/", "timeout": 600, "env": {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OUT": str(folder / "result"),
                                                           "PYTHONHOME": str(SYSTEM / "usr"), "PYTHONPATH": str(folder / "site")}}
        run(python, "-c", CODECS, **environment)
        for name in ("sluice", "sluice-server"):
            (package / "bin" / name).rename(package / f"bin/{name}.arm")
            emulated(package / "bin" / name, package / f"bin/{name}.arm")
        program = package / "bin/sluice"
        if "int8" not in run(program, "codecs", **environment):
            sys.exit("sluice codecs lists no int8")
        said = run(package / "bin/sluice-server", "--version", **environment)
        if f"(gRPC {grpc})" not in said:
            sys.exit(f"the programs should have gRPC {grpc}, but sluice-server --version says: {said}")
        (folder / "worker.py").write_text(WORKER)
        (folder / "job.yaml").write_text("name: arm\nworkers: 2\nshards: 2\ncompression: {uplink: int8, downlink: int8}\n")
        run(program, "run", folder / "job.yaml", "--", python, folder / "worker.py", **environment)
        if [path.read_text() for path in folder.glob("result?")] != ["trained"] * 2:
            sys.exit("not both workers trained")
    print(f"the wheel's codecs, programs and a job of two workers work in {run('qemu-aarch64-static', '--version').splitlines()[0]}")


if __name__ == "__main__":
    main()
