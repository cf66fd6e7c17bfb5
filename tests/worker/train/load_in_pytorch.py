#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that PyTorch loads Sluice's files of a trained model: names, shapes, types and every value.

usage: load_in_pytorch.py WRITE_PARAMETERS     the program of that name
"""
import inspect
import json
import math
import pathlib
import pickletools
import subprocess
import sys
import tempfile
import zipfile

import torch

SHAPES = {
    "conv1.weight": [16, 1, 5, 5], "conv1.bias": [16],
    "conv2.weight": [32, 16, 5, 5], "conv2.bias": [32],
    "fc1.weight": [128, 1568], "fc1.bias": [128],
    "fc2.weight": [10, 128], "fc2.bias": [10],
}
# The only globals that the safe mode of newer PyTorch versions (weights_only) looks up for plain float tensors.
SAFE_GLOBALS = {"torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"}


def check_globals(path):
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        used = {argument for opcode, argument, _ in pickletools.genops(archive.read(name)) if opcode.name == "GLOBAL"}
    assert used <= SAFE_GLOBALS, f"the file needs {sorted(used - SAFE_GLOBALS)}"


def load_safetensors(path):
    """Returns a dict from names to tensors, in the order of the file. Follows the published description of the format."""
    file = path.read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:begin])
    assert begin % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    state, end = {}, 0
    for name, entry in header.items():
        assert entry["dtype"] == "F32" and entry["data_offsets"][0] == end, (name, entry)
        count = math.prod(entry["shape"])
        assert entry["data_offsets"][1] == end + 4 * count, (name, entry)
        state[name] = torch.frombuffer(bytearray(file), dtype=torch.float32, count=count, offset=begin + end).reshape(entry["shape"])
        end += 4 * count
    assert begin + end == len(file)
    return state


def check_values(state):
    assert list(state) == list(SHAPES), list(state)
    for k, (name, shape) in enumerate(SHAPES.items()):
        tensor = state[name]
        assert list(tensor.shape) == shape, (name, tensor.shape)
        assert tensor.dtype == torch.float32, (name, tensor.dtype)
        expected = k + torch.arange(tensor.numel(), dtype=torch.float32) / 1024
        assert torch.equal(tensor.flatten(), expected), name


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        path = pathlib.Path(folder) / "parameters.pt"
        check_globals(path)
        safe = {"weights_only": True} if "weights_only" in inspect.signature(torch.load).parameters else {}
        state = torch.load(path, **safe)
        safetensors = load_safetensors(pathlib.Path(folder) / "parameters.safetensors")
    assert isinstance(state, dict), type(state)
    check_values(state)
    check_values(safetensors)
    print(f"PyTorch {torch.__version__} loads {len(state)} tensors")


if __name__ == "__main__":
    main()
