#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the wheel of a release with pip into new virtual environments, uses its codecs and programs with each Python of the machine
from 3.10 on, checks that its files are hardened, and trains on two ranks with PyTorch of .deps/python. Needs a package index.

usage: wheel_test.py WHEEL GRPC [--torch]     GRPC is the version of gRPC that the programs must name
--torch installs PyTorch for each Python (500 MB each) and trains with all of them.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from hardening import missing_properties

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
CODECS = """
import numpy, sluice.compress
x = numpy.linspace(-1, 1, 500, dtype=numpy.float32)
assert sluice.compress.error(x, "topk:10%+int4").bits_per_element < 4
assert numpy.abs(sluice.compress.decode(sluice.compress.encode(x, "int8")) - x).max() < 0.01
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def pythons():
    """Version -> path. A command of pyenv exists for each version, but only works for chosen ones, so their folders are read, too."""
    found = {}
    folders = [*os.environ["PATH"].split(":"), *pathlib.Path.home().glob(".pyenv/versions/3.*/bin")]
    for minor in range(10, 20):
        for folder in folders:
            python = shutil.which(f"python3.{minor}", path=str(folder))
            if python and subprocess.run([python, "-c", "import venv, ctypes"], capture_output=True).returncode == 0:
                found.setdefault(minor, python)
    return found


def installed(python, folder, wheel):
    """The bin folder of a new environment with the wheel."""
    run(python, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return folder / "bin"


def packages_of(python):
    return pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())


def install_torch(python, other):
    """Installs PyTorch of the version that `other`, an environment of another Python, has, and uses its NVIDIA libraries."""
    version = run(other, "-c", "from importlib.metadata import version; print(version('torch'))").strip()
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", f"torch=={version}")
    run(*pip, "filelock", "fsspec", "jinja2", "networkx", "sympy", "typing_extensions", "setuptools")
    (packages_of(python) / "nvidia").symlink_to(packages_of(other) / "nvidia")


def train(programs, options):
    said = run(programs / "python", "-m", "torch.distributed.run", "--nproc-per-node", "2", SOURCE / "tests/packaging/train_two_ranks.py", **options)
    if said.count("trained") != 2:
        sys.exit(f"not both ranks trained:\n{said}")


def check_hardened(folder):
    files = {"_sluice.abi3.so": False, "bin/sluice": True, "bin/sluice-server": True}
    problems = [f"{file} {problem}" for file, program in files.items() for problem in missing_properties(folder / file, program)]
    if problems:
        sys.exit("\n".join(problems))


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--torch"]):
        sys.exit(__doc__)
    wheel, grpc, all_train = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], len(sys.argv) == 4
    torch = SOURCE / ".deps/python/bin/python"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        empty = {"cwd": "/", "env": {"PATH": "/usr/bin:/bin", "HOME": str(folder)}}
        minors, trained = [], []
        for minor, python in pythons().items():
            programs = installed(python, folder / f"3.{minor}", wheel)
            run(programs / "python", "-c", CODECS, **empty)
            said = run(programs / "sluice-server", "--version", **empty)
            if f"(gRPC {grpc})" not in said:
                sys.exit(f"the programs should have gRPC {grpc}, but sluice-server --version says: {said}")
            run(programs / "sluice", "bench", "exchange", "--elements", "100000", "--warmup", "1", "--repeats", "3", "--no-baselines", **empty)
            minors.append(f"3.{minor}")
            if all_train:
                install_torch(programs / "python", torch)
                train(programs, empty)
                trained.append(f"3.{minor}")
        check_hardened(next((programs.parent / "lib").glob("python*/site-packages/sluice")))
        if not all_train and torch.exists():
            programs = installed(run(torch, "-c", "import sys; print(sys._base_executable)").strip(), folder / "torch", wheel)
            (packages_of(programs / "python") / "torch.pth").write_text(f"{packages_of(torch)}\n")
            train(programs, empty)
            trained.append(run(torch, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip())
    print(f"the wheel works in Python {', '.join(minors)}; it trained with PyTorch in: {', '.join(trained) or 'none (scripts/setup.sh --python)'}")


if __name__ == "__main__":
    main()
