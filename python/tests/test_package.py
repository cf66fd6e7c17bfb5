# SPDX-License-Identifier: Apache-2.0
"""What is installed: files, symbols, programs, types, and other libraries beside it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys

import pytest

import sluice

ROOM = pathlib.Path(sluice.__file__).parent
MODULE = ROOM / "_sluice.abi3.so"


def output(*command: str | pathlib.Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_symbol_is_exported() -> None:
    symbols = [line.split()[-1] for line in output("nm", "-D", "--defined-only", MODULE).splitlines()]
    assert symbols == ["PyInit__sluice"]


def test_nothing_of_pytorch_is_linked() -> None:
    needed = [line for line in output("readelf", "-d", MODULE).splitlines() if "NEEDED" in line]
    assert needed
    assert not [line for line in needed if "torch" in line or "c10" in line or "python" in line]


@pytest.mark.parametrize("program", ["sluice", "sluice-server"])
def test_programs_are_there(program: str) -> None:
    entry = pathlib.Path(sys.executable).parent / program
    assert output(entry, "--version").startswith("sluice 0.")
    assert output(ROOM / "bin" / program, "--help")


def test_types_are_checked() -> None:
    assert (ROOM / "py.typed").exists()
    output(sys.executable, "-m", "mypy", "--strict", "-p", "sluice")


def test_a_second_checker_agrees() -> None:
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed: scripts/test-python.sh installs it")
    output(sys.executable, "-m", "basedpyright", "--project", pathlib.Path(__file__).parents[2], "--pythonpath", sys.executable)


ORDERS = list(itertools.permutations(["torch", "sluice", "grpc", "google.protobuf.struct_pb2"]))
# Each library once first and once last; SLUICE_LONG=1 takes all.
CHOSEN = ORDERS if os.environ.get("SLUICE_LONG") else [ORDERS[0], ORDERS[9], ORDERS[16], ORDERS[23]]

USE = """
import numpy, sluice.compress
x = numpy.linspace(-1, 1, 500, dtype=numpy.float32)
assert sluice.compress.error(x, "topk:10%+int4").bits_per_element < 4
assert float(torch.ones(64, 64).matmul(torch.ones(64, 64))[0, 0]) == 64
message = google.protobuf.struct_pb2.Struct()
message["a"] = 1.5
assert google.protobuf.struct_pb2.Struct.FromString(message.SerializeToString())["a"] == 1.5
channel = grpc.insecure_channel("127.0.0.1:1")
session = sluice.init(torch.nn.Linear(3, 3), quiet=True)
for i in (1, 0):
    session.submit(i, torch.ones(3, 3) if i == 0 else torch.ones(3))
session.wait()
try:
    sluice.init(torch.nn.Linear(3, 3), coordinator="127.0.0.1:1", rank=0, world_size=2, join_timeout=0.1, quiet=True)
except sluice.SluiceError as error:
    assert error.code == "UNAVAILABLE", error
else:
    raise AssertionError("nobody listens there")
channel.close()
print("well")
"""


@pytest.mark.parametrize("order", CHOSEN, ids=lambda order: "-".join(name.split(".")[0] for name in order))
def test_libraries_in_one_process(order: tuple[str, ...]) -> None:
    script = "\n".join(f"import {name}" for name in order) + USE
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "well\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
