# SPDX-License-Identifier: Apache-2.0
"""Reads the model of a running job as a script does that does not know Sluice: `sluice follow` keeps a file up to date, and PyTorch and
safetensors load it after each version. Prints a line of JSON for each version: its number, and the model's loss on fixed data.

usage: foreign_reader.py MODEL DATA COMMAND...
  MODEL    the file that the command keeps up to date
  DATA     a file of PyTorch with inputs and labels
  COMMAND  sluice follow ...
"""

from __future__ import annotations

import json
import subprocess
import sys

import torch
from safetensors.torch import load_file
from torch import nn


def main() -> None:
    path, data, *command = sys.argv[1:]
    torch.set_num_threads(1)
    inputs, labels = torch.load(data)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    follow = subprocess.Popen([*command, "--exec", "echo $SLUICE_VERSION"], stdout=subprocess.PIPE, text=True)
    assert follow.stdout is not None
    try:
        for line in follow.stdout:
            tensors = load_file(path)  # Of this version, or of a newer one.
            model.load_state_dict(tensors, strict=False)
            with torch.no_grad():
                loss = float(nn.functional.cross_entropy(model(inputs), labels))
            types = {name: str(tensor.dtype) for name, tensor in tensors.items()}
            print(json.dumps({"version": int(line), "loss": loss, "types": types}), flush=True)
    except BaseException:
        follow.kill()
        raise
    sys.exit(follow.wait())


main()
