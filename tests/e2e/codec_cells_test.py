#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every runnable cell of the support table: 200 steps of a small real job (cells.yaml) each, 40 where the shards do the updates.

Checks that the run ends well with equal parameters on all workers; that the bytes sent are those that docs/compression.md states (within
10 %) and `sluice bench codecs` predicts (within 5 % where sizes do not depend on the data); and that no two cells give the same
parameters, because then one codec would silently be another. Cells that differ only in `index=` must give the same parameters: the coding
of positions changes bytes, not values.

usage: codec_cells_test.py FOLDER_OF_PROGRAMS [--usual]
  --usual   60 steps, and only codecs with their usual compensator, and as downlink codecs, and each in one mode with updates on the shards
            instead of two
"""
import concurrent.futures
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "cells.yaml")
LIMIT = 120  # In seconds, for one run.
STEPS = 200
USUAL_STEPS = 60  # With --usual. A start takes as long as 200 steps.
MODE_STEPS = 40
# Shapes of cells.yaml's model. Tensors of 1,024 elements and more are compressed; the others are fp16.
LARGE = [(256, 784), (10, 256)]
SMALL = [256, 10]
HEADER = 20  # Size of a frame's header.
CHUNK = 65536  # Elements of the largest chunk.

# Variants that the table's examples leave out.
VARIANTS = [
    "fp16:sr", "bf16:sr", "fp8:e5m2", "fp8:sr", "int8:minmax", "int4:minmax", "int8:sr", "int4:sr",
    "int4:minmax,sr", "qsgd:2", "qsgd:8", "ternary:0.7", "topk:1%", "topk:1%+int8", "topk:1%+sign", "topk:5%+int4",
    "topk:1%,scope=tensor", "topk:1%+int4", "topk:1%,index=bytes+int4", "topk:1%,index=packed+int4",
    "topk:1%,index=rice+int4", "topk:10%+sign", "topk:10%,index=bitmap+sign", "ternary:0.7,index=bytes", "blocktopk:16+int4", "randomk:10%,unbiased", "powersgd:2", "eden:1",
    "eden:4", "intsum:8", "intsum:2", "countsketch:4x",
]


def entropy(density):
    """Returns the bits per kept position that no coding can save."""
    if density >= 1:
        return 0
    return (-density * math.log2(density) - (1 - density) * math.log2(1 - density)) / density


# The smallest coding needs this share of the entropy of independent positions, because positions of real gradients cluster.
CLUSTERED = 0.5


def index_bits(spec, density):
    """Returns the least and the most bits per kept position."""
    mode = re.search(r"index=(\w+)", spec)
    bits = entropy(density)
    return {
        # Allows twice the escapes of independent gaps, because empty stretches escape more often.
        "bytes": lambda: (8, 8 * (1 + 2 * (1 - density)**255)),
        "packed": lambda: (CLUSTERED * bits, 1.2 * bits),
        "bitmap": lambda: (0.95 / density, 1 / density),
    }.get(mode and mode.group(1), lambda: (CLUSTERED * bits, 1.02 * bits))()


def value_bits(spec):
    return {"int8": 8, "int4": 4, "sign": 1}.get(spec.partition("+")[2].partition("/")[0], 16)


def level(spec):
    text = spec.partition(":")[2].partition("/")[0].partition("+")[0].partition(",")[0].rstrip("x")
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return 0  # The word is an option; the codec has no level.


# Returns the bits per element of a compressed m x n tensor, as docs/compression.md states them. Returns the least and the most bits where
# they depend on the data.
def wanted_bits(spec, m, n):
    name = spec.partition(":")[0].partition("+")[0].partition("/")[0]
    width = {"int8": 8, "int4": 4, "int2": 2}.get(name)
    if width:
        return (width + (1 / 8 if "minmax" in spec else 1 / 16),) * 2
    at = level(spec)
    exact = {
        "none": lambda: 32,
        "fp16": lambda: 16,
        "bf16": lambda: 16,
        "fp8": lambda: 8 + 1 / 16,
        "qsgd": lambda: at + 1 / 32,
        "blocktopk": lambda: (value_bits(spec) + math.log2(at)) / at,
        "randomk": lambda: at * value_bits(spec),
        "countsketch": lambda: 32 / at,
        "eden": lambda: at + 3 / 128,
        "intsum": lambda: at + 1 / 16,
        "powersgd": lambda: 16 * at * (m + n) / (m * n) if 2 * at * (m + n) <= m * n else 16,
    }
    if name in exact:
        return (exact[name](),) * 2
    if name in ("topk", "topk_exact"):
        return tuple(at * (value_bits(spec) + bits) for bits in index_bits(spec, at))
    return {
        "ternary": (0.2, 1.6 if "index=bytes" in spec else 1.2), "terngrad": (0.3, 1.6), "natural": (5, 7), "sign": (1.02, 2.02), "signsgd": (1.02, 2.02),
        "onebit": (1.03, 2.03), "threshold": (0.01, 8), "lsh": (0.1, 8.1),
    }[name]


def bytes_for(spec):
    """Returns the least and the most bytes of all frames of a step, without the messages' own."""
    totals = [sum(2 * n + HEADER for n in SMALL)] * 2
    for m, n in LARGE:
        chunks = math.ceil(m * n / CHUNK)
        for i, bits in enumerate(wanted_bits(spec, m, n)):
            totals[i] += m * n * bits / 8 + chunks * HEADER
    return totals


def within(spec):
    """Returns the allowed distance of the job's ratio from that of `sluice bench codecs`, whose gradients are synthetic. None if the
    bytes depend only on the data. In the job, an image's edge pixels are always 0, and whole rows of a layer have large or small
    values. So the job's gradients have more zeros, and their positions cluster."""
    name = spec.partition(":")[0].partition("+")[0].partition("/")[0]
    if name in ("ternary", "threshold", "signsgd"):
        return None
    return 0.3 if name in ("topk", "topk_exact", "terngrad", "lsh") else 0.05


def predicted(sluice, specs):
    """Returns ratio_up by spec, for the tensors of cells.yaml's model."""
    with tempfile.TemporaryDirectory(prefix="sluice-cell-") as folder:
        table, figures = pathlib.Path(folder) / "tensors", pathlib.Path(folder) / "figures.json"
        shapes = [f"{m} {n}" for m, n in LARGE] + [str(n) for n in SMALL]
        table.write_text("".join(f"tensor{i} {shape}\n" for i, shape in enumerate(shapes)))
        command = [sluice, "bench", "codecs", "--table", str(table), "--steps", "20", "--report", str(figures)]
        subprocess.run(command + [word for spec in specs for word in ("--spec", spec)], capture_output=True, check=True)
        return dict(zip(specs, (codec["ratio"] for codec in json.loads(figures.read_text())["codecs"]), strict=True))


# Modes in which the shards do the updates. These cells do not check bytes, because other cells check them, one direction at a time.
MODES = {"on shards": ["optimizer.location=shards"], "local_sgd": ["mode=local_sgd", "local_steps=4"]}


class Cell:
    def __init__(self, uplink, downlink="none", mode=""):
        self.uplink, self.downlink, self.mode = uplink, downlink, mode
        self.steps = MODE_STEPS if mode else STEPS

    def __str__(self):
        if self.mode:
            return f"{self.mode}, {self.uplink} and {self.downlink}"
        return f"uplink {self.uplink}" if self.downlink == "none" else f"downlink {self.downlink}"

    def changes(self):
        return [f"compression.uplink={self.uplink}", f"compression.downlink={self.downlink}", f"steps={self.steps}",
                *MODES.get(self.mode, [])]


def compensated(spec, name):
    return f"{spec}/{name}" + {"dgc": ":0.5"}.get(name, "")


def cells(sluice, only_usual):
    listed = json.loads(subprocess.run([sluice, "codecs", "--json"], capture_output=True, check=True, text=True).stdout)
    names = {codec["name"] for codec in listed}
    result = []
    for codec in listed:
        for name, state in codec["compensators"].items():
            if state == "usual":
                result.append(Cell(codec["example"]))
            elif state == "yes" and not only_usual and codec["name"] != "none":
                result.append(Cell(compensated(codec["example"], name)))
        if codec["downlink"] == "yes" and codec["name"] != "none":
            result.append(Cell("none", codec["example"]))
    result += [Cell(spec) for spec in VARIANTS if spec.partition(":")[0].partition("+")[0] in names]
    for cell in result if only_usual else ():
        cell.steps = USUAL_STEPS
    of_modes = mode_cells(listed)
    return result + (of_modes[::2] if only_usual else of_modes)


def mode_cells(listed):
    """Returns one cell per compatible codec and mode, and /dgc, which works with the shards' sgd without a momentum."""
    result = [Cell(compensated("topk:5%+int4", "dgc"), mode="on shards")]
    for codec in listed:
        downlink = codec["example"] if codec["downlink"] == "yes" else "none"
        # A vote has no magnitude, which weight changes need.
        modes = ["on shards"] if codec["name"] == "signsgd" else MODES
        result += [Cell(codec["example"], downlink, mode) for mode in modes]
    return result


def run(programs, cell):
    with tempfile.TemporaryDirectory(prefix="sluice-cell-") as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [str(programs / "sluice"), "run", JOB, "--report", str(report), "--http-listen", "off", "--quiet", "--threads", "1",
                   "--log-dir", folder]
        for change in cell.changes():
            command += ["--set", change]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            return None, done.stdout + done.stderr
        return json.loads(report.read_text()), ""


def check_bytes(cell, report, overhead):
    """Returns the problem with the bytes sent, or an empty text."""
    up = cell.downlink == "none"
    spec = cell.uplink if up else cell.downlink
    sent = report["bytes_up" if up else "bytes_down"] - overhead
    low, high = bytes_for(spec)
    if 0.9 * low <= sent <= 1.1 * high:
        return ""
    return f"{cell}: {sent:.0f} bytes a step, documented are {low:.0f} to {high:.0f}"


def check_prediction(cell, report, ratios):
    """Returns the difference between the job and `sluice bench codecs`, or an empty text."""
    if cell.downlink != "none" or within(cell.uplink) is None:
        return ""
    job, bench = report["ratio_up"], ratios[cell.uplink]
    if abs(job / bench - 1) <= within(cell.uplink):
        return ""
    return f"{cell}: {job:.1f}x in the job, {bench:.1f}x as `sluice bench codecs` has it"


def main(arguments):
    programs = pathlib.Path(arguments[0])
    chosen = cells(str(programs / "sluice"), "--usual" in arguments)
    problems, hashes, values = [], {}, {}
    uplinks = list(dict.fromkeys(cell.uplink for cell in chosen if cell.downlink == "none" and not cell.mode))
    ratios = predicted(str(programs / "sluice"), uplinks)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        reports = list(pool.map(lambda cell: run(programs, cell), chosen))
    plain = next(report for cell, (report, _) in zip(chosen, reports) if str(cell) == "uplink none")
    # Messages add the same overhead to every codec's frames.
    overhead_up = plain["bytes_up"] - bytes_for("none")[0] - sum(2 * n for n in SMALL)
    overhead_down = plain["bytes_down"] - bytes_for("none")[0] - sum(2 * n for n in SMALL)
    for cell, (report, output) in zip(chosen, reports):
        if report is None:
            problems.append(f"{cell}: the run failed:\n{output}")
            continue
        up = cell.downlink == "none"
        print(f"{str(cell):34} ratio_up {report['ratio_up']:7.1f}  ratio_down {report['ratio_down']:7.1f}  "
              f"accuracy {100 * report['test_accuracy']:5.1f} %  {report['parameters_sha256'][:12]}")
        if not report["ok"] or report["steps"] != cell.steps:
            problems.append(f"{cell}: ended after {report['steps']} steps")
        if not cell.mode:
            checks = [check_bytes(cell, report, overhead_up if up else overhead_down), check_prediction(cell, report, ratios)]
            problems += [problem for problem in checks if problem]
        by_values = re.sub(r",index=\w+", "", str(cell))
        twin = hashes.setdefault(report["parameters_sha256"], by_values)
        if twin != by_values:
            problems.append(f"{cell} and {twin} give the same parameters")
        if values.setdefault(by_values, report["parameters_sha256"]) != report["parameters_sha256"]:
            problems.append(f"{cell} gives other parameters than {by_values}")
    print(f"{len(chosen)} cells, {len(problems)} problems")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
