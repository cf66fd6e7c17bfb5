#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records PyTorch's results for Sluice's models: torchvision's models if it has them, otherwise those of reference_models.py.

usage: record_reference.py FOLDER     writes FOLDER/reference_steps.txt and FOLDER/torchvision_state_dicts.txt

The recorded files were made with Debian's python3-torch 1.13.1 and python3-torchvision 0.14.1. Uses double precision, so that
differences come from models and not from rounding.
"""
import pathlib
import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional

from reference_models import INPUTS, TARGETS, Gpt, Mlp, ResNet20, SimpleCnn, drawn, fill_parameters, images

RATE = 0.002


def small_stem(model):
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def narrow_vgg16(batch_norm, width, hidden, classes):
    """torchvision's own layers and order, fewer channels, no dropout."""
    stages = [[1, 1], [2, 2], [4, 4, 4], [8, 8, 8], [8, 8, 8]]
    layers = [entry for stage in stages for entry in [factor * width for factor in stage] + ["M"]]
    model = torchvision.models.VGG(torchvision.models.vgg.make_layers(layers, batch_norm), classes)
    model.classifier[0] = nn.Linear(8 * width * 49, hidden)
    model.classifier[3] = nn.Linear(hidden, hidden)
    model.classifier[6] = nn.Linear(hidden, classes)
    model.classifier[2].p = model.classifier[5].p = 0
    return model


def step(name, model, inputs, classes):
    """Lines of one model: a forward and backward pass, a step of plain SGD, and the results after it."""
    targets = drawn(TARGETS, classes, *(inputs.shape if inputs.dim() == 2 else inputs.shape[:1]))
    model.double().train()
    fill_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def loss():
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    first = loss()
    first.backward()
    yield name, "loss", [first.item()]
    yield name, "gradient_norms", [p.grad.norm().item() for p in model.parameters()]
    optimizer.step()
    yield name, "parameter_norms", [p.norm().item() for p in model.parameters()]
    with torch.no_grad():
        yield name, "next_loss", [loss().item()]
        yield name, "buffer_norms", [b.double().norm().item() for b in model.buffers()]
        model.eval()
        yield name, "scores", model(inputs).flatten()[:8].tolist()


def steps():
    yield from step("mlp", Mlp(60, [20, 30], 7), images(5, 3, 4, 5), 7)
    yield from step("simple_cnn", SimpleCnn(10), images(3, 1, 28, 28), 10)
    yield from step("resnet20", ResNet20(10), images(4, 3, 32, 32), 10)
    resnet18, resnet50 = torchvision.models.resnet18, torchvision.models.resnet50
    yield from step("resnet18", resnet18(num_classes=10), images(2, 3, 64, 64), 10)
    yield from step("resnet18_small_stem", small_stem(resnet18(num_classes=10)), images(2, 3, 16, 16), 10)
    yield from step("resnet50", resnet50(num_classes=10), images(2, 3, 64, 64), 10)
    for suffix, batch_norm in (("", False), ("_bn", True)):
        yield from step("vgg16" + suffix, narrow_vgg16(batch_norm, 8, 32, 10), images(2, 3, 64, 64), 10)
    yield from step("char_gpt", Gpt(tokens=11, context=12, layers=3, heads=4, width=32), drawn(INPUTS, 11, 2, 9), 11)


def state_dicts():
    for name in ("resnet18", "resnet50", "vgg16", "vgg16_bn"):
        for key, tensor in getattr(torchvision.models, name)().state_dict().items():
            yield " ".join([name, key, *map(str, tensor.shape)])


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    made = f"# Made by record_reference.py with PyTorch {torch.__version__}"
    with open(folder / "torchvision_state_dicts.txt", "w", encoding="utf-8") as out:
        print(f"{made}, torchvision {torchvision.__version__}: model, name, shape.", file=out)
        for line in state_dicts():
            print(line, file=out)
    with open(folder / "reference_steps.txt", "w", encoding="utf-8") as out:
        print(f"{made}, torchvision {torchvision.__version__}: model, what, values.", file=out)
        for name, what, values in steps():
            print(name, what, *(f"{value:.12g}" for value in values), file=out)
            print(name, what, *(f"{value:.6g}" for value in values[:4]))


if __name__ == "__main__":
    main()
