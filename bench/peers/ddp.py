#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures one exchange of gradients of PyTorch's DistributedDataParallel on gloo, over the same links as Sluice.

    bench/shaped.sh --workers 4 --shards 1 --rate 1gbit --exec bench/peers/ddp.py
    bench/peers/ddp.py --workers 2 --method dense --method powersgd1       # over loopback

Ranks hold tensors of a model's shapes and compute nothing: backward passes finished gradients to DDP. The time of an exchange
is the time of backward on the slowest rank. `bytes` left a rank's interface (on the rank that sent most), and `cpu` is its
processor seconds. PowerSGD runs with all gradients in one bucket. With several buckets, ranks may issue its collectives in
different orders, and gloo then fails or waits forever. bench/README.md explains the figures.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time

METHODS = ["dense", "bf16", "fp16", "powersgd1", "powersgd2", "powersgd4"]
USUAL = ["dense", "bf16", "powersgd1", "powersgd4"]
PACKAGED_PYTHON = "/usr/bin/python3"  # Has Debian's python3-torch.
POWERSGD_START = 2  # Initial dense steps of PowerSGD; its minimum.

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """The trainable tensors of torchvision's model, in its order."""
    def norm(width: int) -> list[Shape]:
        return [(width,), (width,)]

    shapes: list[Shape] = [(64, 3, 7, 7), *norm(64)]
    before = 64
    for layer, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << layer
        for block in range(blocks):
            shapes += [(width, before, 1, 1), *norm(width), (width, width, 3, 3), *norm(width),
                       (4 * width, width, 1, 1), *norm(4 * width)]
            if block == 0:
                shapes += [(4 * width, before, 1, 1), *norm(4 * width)]
            before = 4 * width
    return shapes + [(1000, before), (1000,)]


def read_table(path: pathlib.Path) -> list[Shape]:
    """Reads a table in the format of `sluice bench exchange --table`: a name and dimensions on each line."""
    shapes = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not all(re.fullmatch(r"[1-9]\d*", word) for word in words[1:]):
            sys.exit(f"{path}, line {number}: after the name, \"{words[0]}\", all words must be dimensions")
        shapes.append(tuple(int(word) for word in words[1:]))
    return shapes


def shapes_of(options: argparse.Namespace) -> list[Shape]:
    return read_table(options.table) if options.table else resnet50()


# --- A rank ---

def sent_bytes(interface: str) -> int:
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def speaks_bf16(torch) -> bool:
    """Returns whether gloo reduces bf16. Older versions of gloo do not."""
    try:
        torch.distributed.all_reduce(torch.zeros(8, dtype=torch.bfloat16))
    except RuntimeError:
        return False
    return True


def make_model(torch, shapes: list[Shape]):
    """A module without computation whose backward returns the gradients in `ready`."""
    class Inject(torch.autograd.Function):
        @staticmethod
        def forward(ctx, model, *parameters):
            ctx.model = model
            return torch.zeros(())

        @staticmethod
        def backward(ctx, _):
            ready, ctx.model.ready = ctx.model.ready, []
            return (None, *ready)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])
            self.ready = []

        def forward(self):
            return Inject.apply(self, *self.parts)

    return Model()


def add_hook(torch, ddp, method: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    if method in ("bf16", "fp16"):
        ddp.register_comm_hook(None, getattr(default_hooks, f"{method}_compress_hook"))
    elif method != "dense":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(method.removeprefix("powersgd")),
                                            start_powerSGD_iter=POWERSGD_START)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def exchange(torch, model, ddp, gradients) -> float:
    """Seconds of one backward. Gradients are copied first, so that DDP gets tensors without other references, as in
    training, and does not copy them itself."""
    for parameter in model.parts:
        parameter.grad = None
    loss = ddp()
    model.ready = [gradient.clone() for gradient in gradients]
    torch.distributed.barrier()
    begin = time.monotonic()
    loss.backward()
    return time.monotonic() - begin


def run_method(torch, options: argparse.Namespace, method: str, shapes: list[Shape], gradients) -> dict:
    megabytes = sum(gradient.numel() for gradient in gradients) * 4 / 2**20
    keywords = {}
    first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    if method.startswith("powersgd"):
        keywords["bucket_cap_mb"] = int(megabytes) + 2
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = (int(megabytes) + 2) << 20
    try:
        model = make_model(torch, shapes)
        ddp = torch.nn.parallel.DistributedDataParallel(model, **keywords)
    finally:
        torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = first
    add_hook(torch, ddp, method)
    seconds, sent, cpu = [], [], []
    for turn in range(options.warmup + POWERSGD_START + options.repeats):
        torch.distributed.barrier()
        before = sent_bytes(options.interface), time.process_time()
        took = exchange(torch, model, ddp, gradients)
        if turn >= options.warmup + POWERSGD_START:
            seconds.append(took)
            sent.append(sent_bytes(options.interface) - before[0])
            cpu.append(time.process_time() - before[1])
    buckets = ddp._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
    return {"method": method, "seconds": seconds, "bytes": statistics.median(sent), "cpu": statistics.fmean(cpu),
            "buckets": len(str(buckets).split(",")),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def be_rank(options: argparse.Namespace) -> None:
    import warnings
    warnings.filterwarnings("ignore")
    import torch
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{options.hosts.split(',')[0]}:{options.port}", rank=options.rank,
        world_size=options.workers)
    shapes = shapes_of(options)
    generator = torch.Generator().manual_seed(options.rank)
    gradients = [torch.randn(shape, generator=generator) * 1e-3 for shape in shapes]
    bf16 = speaks_bf16(torch)
    for method in options.method:
        if method == "bf16" and not bf16:
            method = "fp16"
        row = run_method(torch, options, method, shapes, gradients)
        print(json.dumps({**row, "torch": torch.__version__}), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


# --- The parent of all ranks ---

def python_with_torch(asked: str | None) -> str:
    for python in [asked] if asked else dict.fromkeys([sys.executable, PACKAGED_PYTHON]):
        if subprocess.run([python, "-c", "import torch.distributed"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    where = asked or f"{sys.executable} and in {PACKAGED_PYTHON}"
    sys.exit(f"there is no PyTorch in {where}: apt-get install python3-torch, or name a Python that has it with --python")


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start_ranks(options: argparse.Namespace, hosts: list[str], wrap: str, interface: str) -> list[subprocess.Popen]:
    python, port = python_with_torch(options.python), free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
    ranks = []
    for rank in range(options.workers):
        command = [*wrap.replace("{}", str(rank)).split(), python, __file__, "--rank", str(rank), "--port", str(port),
                   "--workers", str(options.workers), "--hosts", ",".join(hosts), "--interface", interface,
                   "--warmup", str(options.warmup), "--repeats", str(options.repeats),
                   *(["--table", str(options.table)] if options.table else []),
                   *(f"--method={method}" for method in options.method)]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=environment, preexec_fn=die_with_parent))
    return ranks


def collect(options: argparse.Namespace, ranks: list[subprocess.Popen]) -> list[list[dict]]:
    """The rows of each rank."""
    end = time.monotonic() + options.timeout
    try:
        # A failed rank makes the others wait. The first rank that ends with an error is therefore the cause.
        running = True
        while running:
            running = any(rank.poll() is None for rank in ranks)
            failed = [i for i, rank in enumerate(ranks) if rank.returncode]
            if failed:
                message = ranks[failed[0]].stderr.read().strip().splitlines()[-1:] or ["it said nothing"]
                sys.exit(f"rank {failed[0]} ended with status {ranks[failed[0]].returncode}: {message[0]}")
            if time.monotonic() > end:
                sys.exit(f"DDP did not end within {options.timeout} s; raise --timeout")
            if running:
                time.sleep(0.05)
        return [[json.loads(line) for line in rank.stdout] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def summary(rows: list[dict]) -> dict:
    """One method's row over all ranks."""
    slowest = [1000 * max(seconds) for seconds in zip(*(row["seconds"] for row in rows))]
    return {"method": rows[0]["method"],
            "exchange_ms": {"min": min(slowest), "median": statistics.median(slowest), "max": max(slowest)},
            "bytes_sent": max(row["bytes"] for row in rows), "cpu_seconds": max(row["cpu"] for row in rows),
            "buckets": rows[0]["buckets"], "peak_rss_bytes": max(row["peak_rss_bytes"] for row in rows)}


def print_table(result: dict) -> None:
    print(f"PyTorch {result['torch']} DDP on gloo, {result['workers']} ranks, {result['tensors']} tensors, "
          f"{result['elements'] / 1e6:.1f} M elements, links {result['rate']}; load {result['load']:.1f}")
    print(f"{'method':<11}{'min':>9}{'median':>9}{'max':>9} ms {'MB sent':>9}{'CPU s':>8}{'buckets':>9}")
    for row in result["rows"]:
        took = row["exchange_ms"]
        print(f"{row['method']:<11}{took['min']:9.1f}{took['median']:9.1f}{took['max']:9.1f}    "
              f"{row['bytes_sent'] / 1e6:9.1f}{row['cpu_seconds']:8.3f}{row['buckets']:9d}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=int(os.environ.get("SHAPED_WORKERS", "2")),
                        help="ranks (default: those of bench/shaped.sh, or 2)")
    parser.add_argument("--method", action="append", choices=METHODS, help=f"repeatable; {', '.join(USUAL)}")
    parser.add_argument("--model", choices=["resnet50"], default="resnet50", help="model with the shapes; use --table for others")
    parser.add_argument("--table", type=pathlib.Path, help="a tensor table in the format of `sluice bench exchange`")
    parser.add_argument("--warmup", type=int, default=2, help="exchanges before the measured ones")
    parser.add_argument("--repeats", type=int, default=7, help="measured exchanges")
    parser.add_argument("--python", help=f"a Python with PyTorch (default: this one or {PACKAGED_PYTHON})")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the whole run")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures to this file")
    for hidden in ("--rank", "--port"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    for hidden in ("--hosts", "--interface"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.method = options.method or USUAL
    return options


def main() -> None:
    options = parse()
    if options.rank is not None:
        be_rank(options)
        return
    hosts, wrap, interface = ["127.0.0.1"], "", "lo"
    if "SHAPED_WORKER_HOSTS" in os.environ:
        hosts, wrap, interface = os.environ["SHAPED_WORKER_HOSTS"].split(","), "ip netns exec w{}", "eth0"
        if options.workers > len(hosts):
            sys.exit(f"there are links for {len(hosts)} workers, not for {options.workers}")
    rows = collect(options, start_ranks(options, hosts, wrap, interface))
    shapes = shapes_of(options)
    elements = 0
    for shape in shapes:
        count = 1
        for dimension in shape:
            count *= dimension
        elements += count
    result = {"torch": rows[0][0]["torch"], "workers": options.workers, "tensors": len(shapes), "elements": elements,
              "rate": os.environ.get("SHAPED_RATE", "none (loopback)"), "load": os.getloadavg()[0],
              "rows": [summary(list(of_method)) for of_method in zip(*rows)]}
    print_table(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
