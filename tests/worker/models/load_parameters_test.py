#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that PyTorch's models accept Sluice's parameters.pt: same names, same shapes, same scores.

usage: load_parameters_test.py WRITE_MODEL     the program of that name
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision

from reference_models import INPUTS, Gpt, Mlp, ResNet20, SimpleCnn, drawn, images

# The models of write_model.
MODELS = {
    "mlp": lambda: Mlp(60, [20, 30], 7),
    "simple_cnn": lambda: SimpleCnn(10),
    "resnet20": lambda: ResNet20(10),
    "resnet18": torchvision.models.resnet18,
    "resnet50": torchvision.models.resnet50,
    "vgg16": torchvision.models.vgg16,
    "char_gpt": lambda: Gpt(tokens=11, context=12, layers=4, heads=4, width=128),
}
INPUT_SIZES = {"mlp": (2, 3, 4, 5), "simple_cnn": (2, 1, 28, 28), "resnet20": (2, 3, 32, 32)}


def scores_of(name, model):
    sizes = INPUT_SIZES.get(name, (2, 3, 64, 64))
    inputs = drawn(INPUTS, 11, 2, 9) if name == "char_gpt" else images(*sizes).float()
    with torch.no_grad():
        return model.eval()(inputs).flatten()


def main():
    torch.set_num_threads(1)
    for name, make in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            output = subprocess.run([sys.argv[1], name, folder], check=True, stdout=subprocess.PIPE, text=True).stdout
            state = torch.load(pathlib.Path(folder) / "parameters.pt")
        model = make()
        model.load_state_dict(state, strict=True)
        ours = torch.tensor([float(word) for word in output.split()])
        theirs = scores_of(name, model)[:len(ours)]
        error = ((ours - theirs).norm() / theirs.norm()).item()
        assert len(ours) == 8 and error < 1e-4, (name, error, ours, theirs)
        print(f"{name}: {len(state)} tensors, scores differ by {error:.1e}")


if __name__ == "__main__":
    main()
