#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a real model with Adam at small rates and measures the patches between its bf16 versions.

usage: bench/follow_patch.py [BIN] [--rates 1e-6,1e-5] [--steps 100] [--json FILE]

Needs scripts/follow_data.py, PyTorch (Debian: python3-torch) and zstd. BIN has the programs sluice and patch_bench (default: build/release/bin).
The model is all-MiniLM-L6-v2 (22.7 million parameters). Its fp32 weights take Adam's steps from the real gradients of a contrastive loss: a passage
of this repository's documentation must find the passage after it among those of a batch. After every step, the weights are rounded to bf16, `sluice
patch make` writes the patch from the version before, and `sluice patch apply` applies it to a follower's file. Their digests are compared with
those that this program computes.
"""
import argparse
import hashlib
import json
import math
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "build/data/minilm"
LAYERS, HEADS = 6, 12
BATCH, TOKENS = 8, 24  # Passages in a batch, and tokens in each.
TEMPERATURE = 0.05
CHUNK = 1 << 20
PAD, UNKNOWN, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def load_weights():
    """The fp32 tensors of the model by name, in the order of the file."""
    data = (MODEL / "model.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    tensors = {}
    for name, entry in entries:
        if entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            values = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.float32)
            tensors[name] = values.reshape(entry["shape"]).requires_grad_()
    return tensors


def pieces(word, vocabulary):
    """WordPiece: the longest known beginning, then the longest known continuations."""
    found, start = [], 0
    while start < len(word):
        end = next((end for end in range(len(word), start, -1) if ("##" if start else "") + word[start:end] in vocabulary), None)
        if end is None:
            return [UNKNOWN]
        found.append(("##" if start else "") + word[start:end])
        start = end
    return found


def passages():
    """Token ids of consecutive passages of the documentation, one per row."""
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"]
    text = "\n".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]).lower()
    tokens = [piece for word in re.findall(r"[a-z]+|[0-9]+|[^\sa-z0-9]", text) for piece in pieces(word, vocabulary)]
    inner = TOKENS - 2
    rows = [[CLS, *tokens[at:at + inner], SEP] for at in range(0, len(tokens) - inner, inner)]
    return torch.tensor([[vocabulary[token] for token in row] for row in rows])


def norm(x, tensors, name):
    return functional.layer_norm(x, x.shape[-1:], tensors[name + ".weight"], tensors[name + ".bias"], 1e-12)


def linear(x, tensors, name):
    return functional.linear(x, tensors[name + ".weight"], tensors[name + ".bias"])


def embed(ids, tensors):
    """BERT with mean pooling, as the model was published. All passages have the same length, so nothing is masked."""
    x = tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.position_embeddings.weight"][:ids.shape[1]]
    x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], tensors, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        q, k, v = (linear(x, tensors, f"{prefix}attention.self.{part}").unflatten(2, (HEADS, -1)).transpose(1, 2) for part in ("query", "key", "value"))
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]), -1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        x = norm(x + linear(mixed, tensors, prefix + "attention.output.dense"), tensors, prefix + "attention.output.LayerNorm")
        wide = functional.gelu(linear(x, tensors, prefix + "intermediate.dense"))
        x = norm(x + linear(wide, tensors, prefix + "output.dense"), tensors, prefix + "output.LayerNorm")
    return functional.normalize(x.mean(1), dim=-1)


def loss_of(rows, first, tensors):
    similarity = embed(rows[first], tensors) @ embed(rows[first + 1], tensors).T / TEMPERATURE
    return functional.cross_entropy(similarity, torch.arange(len(first)))


def bf16_of(tensors):
    """The weights rounded to bf16, as bit patterns in one array."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors.values()])
    return flat.to(torch.bfloat16).view(torch.int16).numpy().view(numpy.uint16).copy()


def write_model(path, tensors, patterns):
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + 2 * tensor.numel()]}
        at += 2 * tensor.numel()
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write(patterns.tobytes())


def digest_of(patterns):
    return hashlib.sha256(b"".join(hashlib.sha256(patterns[at:at + CHUNK].tobytes()).digest() for at in range(0, len(patterns), CHUNK))).hexdigest()


def ordered(patterns):
    wide = patterns.astype(numpy.int32)
    return numpy.where(wide & 0x8000, 0xFFFF - wide, wide | 0x8000)


def entropy(counts):
    share = counts[counts > 0] / counts.sum()
    return float(-(share * numpy.log2(share)).sum())


def zstd(data):
    return len(subprocess.run(["zstd", "-1", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout)


def varints(numbers):
    """LEB128 of an array."""
    numbers = numbers.astype(numpy.uint64)
    columns = []
    rest = numbers
    for column in range(5):
        more = rest >= 128
        present = numpy.ones(len(numbers), bool) if column == 0 else numbers >> (7 * column) > 0
        columns.append(numpy.where(present, (rest & 127) | numpy.where(more, 128, 0).astype(numpy.uint64), 256))
        rest = rest >> numpy.uint64(7)
    flat = numpy.stack(columns, 1).flatten()
    return flat[flat < 256].astype(numpy.uint8).tobytes()


def facts_of(before, after):
    """What any coder would have to send, and what zstd makes of two simple forms of it."""
    positions = numpy.flatnonzero(before != after)
    steps = ordered(after[positions]) - ordered(before[positions])
    changed, elements = len(positions), len(before)
    gaps = numpy.diff(positions, prepend=-1) - 1
    zigzag = numpy.where(steps < 0, -2 * steps - 1, 2 * steps)
    bits = elements * entropy(numpy.array([changed, elements - changed])) / changed + entropy(numpy.unique(steps, return_counts=True)[1])
    return {"changed": changed, "share": changed / elements, "one_step": float((numpy.abs(steps) == 1).mean()), "entropy_bits": bits,
            "zstd_xor": zstd((before ^ after).tobytes()), "zstd_gap_value": zstd(varints(gaps) + varints(zigzag))}


def run(program, *arguments):
    done = subprocess.run([str(program), *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def train(rate, count):
    """Returns (loss, changed positions, their new patterns) of each step. The result is kept in build/data, because training takes minutes."""
    kept = ROOT / f"build/data/minilm-{rate:g}-{count}.npz"
    if kept.exists():
        with numpy.load(kept) as arrays:
            return [(float(arrays[f"loss{step}"]), arrays[f"at{step}"], arrays[f"to{step}"]) for step in range(count)]
    torch.manual_seed(1)
    rows, tensors = passages(), load_weights()
    optimizer = torch.optim.Adam(tensors.values(), lr=rate)
    before, steps = bf16_of(tensors), []
    for step in range(count):
        first = torch.randperm(len(rows) - 1)[:BATCH]
        optimizer.zero_grad()
        loss = loss_of(rows, first, tensors)
        loss.backward()
        optimizer.step()
        after = bf16_of(tensors)
        at = numpy.flatnonzero(before != after)
        steps.append((loss.item(), at, after[at]))
        before = after
        print(f"rate {rate:g}, step {step + 1} of {count}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
    numpy.savez_compressed(kept, **{f"{name}{step}": value for step, parts in enumerate(steps) for name, value in zip(("loss", "at", "to"), parts)})
    return steps


def measure(options, rate, folder):
    """Yields the facts of each step. Leaves the last two versions in the folder."""
    tensors = load_weights()
    before = bf16_of(tensors)
    old, new, follower, patch = folder / "old", folder / "new", folder / "follower", folder / "patch"
    write_model(old, tensors, before)
    shutil.copy(old, follower)
    for number, (loss, at, to) in enumerate(train(rate, options.steps), 1):
        after = before.copy()
        after[at] = to
        write_model(new, tensors, after)
        run(options.bin / "sluice", "patch", "make", old, new, "-o", patch, "--model-version", number)
        output = run(options.bin / "sluice", "patch", "apply", follower, patch, "-o", follower)
        if output.split()[-1] != digest_of(after) or follower.read_bytes() != new.read_bytes():
            sys.exit(f"follow_patch: step {number} at rate {rate} led to other weights")
        yield {"step": number, "loss": loss, "elements": len(after), "patch": patch.stat().st_size, **facts_of(before, after)}
        if number < options.steps:
            new.replace(old)
        before = after


def row(name, steps):
    changed = sum(step["changed"] for step in steps)
    per = {key: sum(step[key] for step in steps) / changed for key in ("patch", "zstd_xor", "zstd_gap_value")}
    bound = sum(step["entropy_bits"] * step["changed"] for step in steps) / changed
    ratio = statistics.mean(2 * step["elements"] / step["patch"] for step in steps)
    share = statistics.mean(step["share"] for step in steps)
    one_step = statistics.mean(step["one_step"] for step in steps)
    return (f"| {name} | {share:.3%} | {one_step:.1%} | {per['patch']:.3f} | {bound / 8:.3f} | {8 * per['patch'] - bound:+.2f} | {ratio:.0f}x | "
            f"{per['zstd_xor']:.2f} | {per['zstd_gap_value']:.2f} |")


def goals(steps):
    """The steps that miss a goal of the format."""
    for step in steps:
        per, share = step["patch"] / step["changed"], step["share"]
        if per > 1.4 if share >= 0.003 else 8 * per > step["entropy_bits"] + 0.5:
            yield f"step {step['step']}: {per:.3f} bytes per changed weight at {share:.3%}, entropy {step['entropy_bits'] / 8:.3f}"
        if share <= 0.01 and 2 * step["elements"] < 100 * step["patch"]:
            yield f"step {step['step']}: {2 * step['elements'] / step['patch']:.0f} times smaller than bf16 at {share:.3%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?", default=ROOT / "build/release/bin", type=pathlib.Path)
    parser.add_argument("--rates", default="1e-6,1e-5", type=lambda text: [float(rate) for rate in text.split(",")])
    parser.add_argument("--steps", default=100, type=int)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures of all steps to this file")
    options = parser.parse_args()
    if not MODEL.exists():
        sys.exit("follow_patch: run scripts/follow_data.py first")
    print("| rate, steps | changed | by one step | bytes per changed weight | entropy | bits above | smaller than bf16 | zstd -1 of XOR | of (gap, step) |")
    print("|---|---|---|---|---|---|---|---|---|")
    everything, missed, speeds = {}, [], {}
    for rate in options.rates:
        with tempfile.TemporaryDirectory() as name:
            steps = list(measure(options, rate, pathlib.Path(name)))
            speeds[rate] = json.loads(run(options.bin / "patch_bench", pathlib.Path(name, "old"), pathlib.Path(name, "new")))
        everything[str(rate)] = {"steps": steps, "gigabytes_per_second": speeds[rate]}
        tenth = max(len(steps) // 10, 1)
        print(row(f"{rate:g}, first {tenth}", steps[:tenth]))
        print(row(f"{rate:g}, last {tenth}", steps[-tenth:]))
        print(row(f"{rate:g}, all {len(steps)}", steps), flush=True)
        missed += [f"rate {rate:g}, {text}" for text in goals(steps)]
    print("\nGB of weights per second of processor time on one core, last step of each rate:")
    for rate, figures in speeds.items():
        print(f"{rate:g}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    print(f"\n{len(missed)} figures miss a goal" + "".join(f"\n  {text}" for text in missed))
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
