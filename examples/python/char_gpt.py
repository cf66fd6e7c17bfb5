# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on a text, character by character. The lines marked `# +` distribute a plain loop, without DDP.

    bible -f gen1:1-rev22:21 >bible.txt
    torchrun --nproc-per-node 2 examples/python/char_gpt.py bible.txt

Debian's package bible-kjv contains the program and the King James Bible. Any other text will do.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import torch
from torch import nn

import sluice  # +


class Block(nn.Module):
    """Causal attention and a perceptron, each on a normalized input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(future, -math.inf)
        x = x + self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape))
        out: torch.Tensor = x + self.perceptron(self.norm2(x))
        return out


class GPT(nn.Module):
    """Scores of the next character at each position."""

    def __init__(self, characters: int, context: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1]))))
        return scores


@torch.no_grad()
def written(model: nn.Module, text: torch.Tensor, context: int, length: int) -> list[int]:
    """Returns the text with `length` more characters, drawn from the model's distribution."""
    for _ in range(length):
        scores = model(text[None, -context:])[0, -1]
        text = torch.cat([text, torch.multinomial(scores.softmax(0), 1)])
    return [int(token) for token in text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=pathlib.Path, help="a text file, some hundred kB or more")
    parser.add_argument("--steps", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--context", type=int, default=64, help="characters that the model sees (default: %(default)s)")
    parser.add_argument("--uplink", default="int4", help="codec of gradients (default: %(default)s)")
    options = parser.parse_args()

    text = options.text.read_text()
    characters = sorted(set(text))
    numbers = {character: i for i, character in enumerate(characters)}
    tokens = torch.tensor([numbers[character] for character in text])

    torch.manual_seed(1)
    model = GPT(len(characters), options.context)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.004)
    session = sluice.init(uplink=options.uplink)  # +
    optimizer = sluice.DistributedOptimizer(optimizer, model.named_parameters())  # +
    torch.manual_seed(100 + session.rank)  # +  Each rank draws its own samples.
    for step in range(1, options.steps + 1):
        starts = torch.randint(len(tokens) - options.context, (16,))
        samples = tokens[starts[:, None] + torch.arange(options.context + 1)]
        loss = nn.functional.cross_entropy(model(samples[:, :-1]).flatten(0, 1), samples[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if session.rank == 0 and (step % 20 == 0 or step == 1):
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    if session.rank == 0:
        print("".join(characters[token] for token in written(model, tokens[:1], options.context, 200)))
        figures = session.figures()  # +
        print(f"bytes of a rank: {figures.bytes_up} up, {figures.bytes_down} down, {figures.dense_bytes} without Sluice")  # +
    session.close()  # +


if __name__ == "__main__":
    main()
