# SPDX-License-Identifier: Apache-2.0
"""Reads the model of a running job as a script does that does not know Sluice: `sluice follow` keeps a file up to date, PyTorch and
safetensors load it after each version. Prints a line of JSON for each file that it has loaded: the version, and the loss on fixed data.

usage: foreign_reader.py MODEL DATA COMMAND...
  MODEL    the file that the command keeps up to date
  COMMAND  sluice follow ...
"""

from __future__ import annotations

import json
import subprocess
import sys

import torch
from safetensors import safe_open
from torch import nn


def main() -> None:
    path, data, *command = sys.argv[1:]
    torch.set_num_threads(1)
    inputs, labels = torch.load(data)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    last = -1
    with subprocess.Popen([*command, "--exec", "echo $SLUICE_VERSION"], stdout=subprocess.PIPE, text=True) as follow:
        assert follow.stdout is not None
        for line in follow.stdout:
            with safe_open(path, "pt") as file:
                version = int(file.metadata()["sluice_version"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            assert version >= int(line), (version, line)  # The file may be newer than the line.
            if version == last:
                continue
            last = version
            assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
            model.load_state_dict(tensors, strict=False)
            with torch.no_grad():
                loss = nn.functional.cross_entropy(model(inputs), labels)
            print(json.dumps({"version": version, "loss": float(loss), "names": sorted(tensors)}), flush=True)
    sys.exit(follow.returncode)


main()
