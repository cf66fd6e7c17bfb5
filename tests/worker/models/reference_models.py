# SPDX-License-Identifier: Apache-2.0
"""Models that torchvision does not have, as PyTorch modules, and the formula for parameters and inputs.

filled.h has the same formula.
"""
import math

import numpy
import torch
from torch import nn
from torch.nn import functional

INPUTS, TARGETS = 1000, 1001  # Streams of the formula; parameters have streams from 0 on.


def fill(stream, count):
    """Numbers in [-1, 1): a hash of 32 bits of stream * 1000003 + 0, 1, 2 and so on."""
    x = (numpy.arange(count, dtype=numpy.uint64) + stream * 1000003).astype(numpy.uint32)
    x ^= x >> 16
    x *= numpy.uint32(0x7FEB352D)
    x ^= x >> 15
    x *= numpy.uint32(0x846CA68B)
    x ^= x >> 16
    return torch.from_numpy(x.astype(numpy.float64) / 2**31 - 1)


def fill_parameters(model):
    with torch.no_grad():
        for stream, (name, tensor) in enumerate(model.named_parameters()):
            values = fill(stream, tensor.numel()).reshape(tensor.shape)
            if tensor.dim() > 1:
                values *= math.sqrt(6 / (tensor.numel() // tensor.shape[0]))
            else:
                values = 0.1 * values + (0 if name.endswith("bias") else 1)
            tensor.copy_(values)


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.fc3 = nn.Linear(hidden[1], classes)

    def forward(self, x):
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class SimpleCnn(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = functional.max_pool2d(self.conv1(x).relu(), 2)
        x = functional.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc2(self.fc1(x.flatten(1)).relu())


class PaddedBlock(nn.Module):
    """A block of the CIFAR networks of "Deep Residual Learning for Image Recognition" with option A."""

    def __init__(self, inputs, width):
        super().__init__()
        self.stride = 1 if inputs == width else 2
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if self.stride == 2:
            x = x[:, :, ::2, ::2]
            x = torch.cat([x, torch.zeros_like(x)], dim=1)
        return (x + y).relu()


class ResNet20(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[PaddedBlock(16, 16) for _ in range(3)])
        self.layer2 = nn.Sequential(PaddedBlock(16, 32), PaddedBlock(32, 32), PaddedBlock(32, 32))
        self.layer3 = nn.Sequential(PaddedBlock(32, 64), PaddedBlock(64, 64), PaddedBlock(64, 64))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Gpt(nn.Module):
    """GPT-2's layers with explicit attention."""

    def __init__(self, tokens, context, layers, heads, width):
        super().__init__()
        self.wte = nn.Embedding(tokens, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([GptBlock(heads, width) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class GptBlock(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def attend(self, x):
        count, length, width = x.shape
        q, k, v = (part.reshape(count, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.attn["c_attn"](x).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        return self.attn["c_proj"]((scores.softmax(3) @ v).transpose(1, 2).reshape(count, length, width))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        y = self.mlp["c_fc"](self.ln_2(x))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        return x + self.mlp["c_proj"](y)


def images(count, channels, height, width):
    return fill(INPUTS, count * channels * height * width).reshape(count, channels, height, width)


def drawn(stream, below, *sizes):
    """Integers below `below`."""
    return ((fill(stream, math.prod(sizes)) + 1) / 2 * below).floor().long().reshape(sizes)
