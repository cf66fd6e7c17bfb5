# SPDX-License-Identifier: Apache-2.0
"""Checks the hand-over of gradients on a real GPU, with two ranks on one GPU, and measures for how long it blocks a step.

    python python/tests/gpu_check.py          # needs CUDA, and takes less than a minute
    python python/tests/gpu_check.py --cpu    # the same with tensors of the host that count as a device's

It trains with staging and with plain blocking copies, and compares the final parameters bit for bit. It prints a table of
times at the end, and exits with 1 if a check fails or takes too long.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice
import sluice._session
from sluice._staging import Staging
from sluice._tensors import Row, new

PATIENCE = 55.0  # Seconds for everything.
STEPS = 6
MEASURED = 10
WARM_UP = 3


def start_ranks(arguments: argparse.Namespace) -> int:
    """Runs two ranks and prints what they say. Returns the exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder) / f"output-{rank}" for rank in range(2)]
        ranks = []
        for rank, output in enumerate(outputs):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", OMP_NUM_THREADS="2", CUBLAS_WORKSPACE_CONFIG=":4096:8")
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
            for name in ("MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
                environment.pop(name, None)
            command = [sys.executable, __file__, "--folder", folder, *(["--cpu"] if arguments.cpu else [])]
            with output.open("w") as file:
                ranks.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True))
        while any(rank.poll() is None for rank in ranks) and time.monotonic() - began < PATIENCE:
            if any(rank.poll() for rank in ranks):
                time.sleep(3.0)  # The other rank says why.
                break
            time.sleep(0.05)
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
        codes = [rank.returncode for rank in ranks]
        for i, output in enumerate(outputs):
            if i == 0 or any(codes):
                print(f"---- rank {i}, exit code {codes[i]} ----\n{output.read_text(errors='replace')}", flush=True)
    print(f"{'FAILED' if any(codes) else 'passed'} in {time.monotonic() - began:.1f} s", flush=True)
    return 1 if any(codes) else 0


RANK = int(os.environ.get("RANK", "0"))
CPU = "--cpu" in sys.argv
_began = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - _began:6.1f} s  {text}", flush=True)


class Ended:
    def synchronize(self) -> None:
        pass


class Pretended:
    """A device whose memory is the host's."""

    def holds(self, tensor: torch.Tensor) -> bool:
        return True

    def new(self, row: Row, dtype: torch.dtype) -> torch.Tensor:
        return new(row, dtype)

    def fetch(self, source: torch.Tensor, host: torch.Tensor, after: Any) -> Ended:
        host.copy_(source)
        return Ended()

    def store(self, host: torch.Tensor, target: torch.Tensor) -> Ended:
        target.copy_(host)
        return Ended()


class Counted(Staging):
    """Staging that counts what went through it."""

    submitted = 0
    written = 0

    def __init__(self, core: Any) -> None:
        super().__init__(core, Pretended() if CPU else None)

    def submit(self, *arguments: Any) -> None:
        Counted.submitted += 1
        super().submit(*arguments)

    def write_mean(self, *arguments: Any) -> None:
        Counted.written += 1
        super().write_mean(*arguments)


class Blocking(Staging):
    """The host waits for each copy."""

    def holds(self, tensor: torch.Tensor) -> bool:
        return False


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Linear(8 * 64, 200)
        self.norm = nn.LayerNorm(200)
        self.last = nn.Linear(200, 10)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x).relu().flatten(1)
        return self.last(self.norm(self.middle(x)).relu()) * self.scale


def device() -> torch.device:
    return torch.device("cpu") if CPU else torch.device("cuda", 0)


def begin(staging: type[Staging]) -> sluice.Session:
    sluice._session.Staging = staging  # type: ignore[misc]
    return sluice.init(uplink="int8", downlink="int8", quiet=True)


def train(kind: str, dtype: torch.dtype, staging: type[Staging]) -> tuple[list[torch.Tensor], list[float]]:
    """Returns the final parameters and the losses."""
    torch.manual_seed(3)
    model: Any = Model().to(device(), dtype).to(memory_format=torch.channels_last)
    session = begin(staging)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    if kind == "ddp":
        model = DistributedDataParallel(model)
        sluice.attach(model, session=session)
    else:
        optimizer = sluice.DistributedOptimizer(optimizer, model.named_parameters(), session=session)
    generator = torch.Generator().manual_seed(17 + RANK)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 3, 8, 8, generator=generator).to(device(), dtype)
        optimizer.zero_grad()
        loss = (model(x).float() - x.float().mean()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    session.close()
    return [p.detach().clone() for p in model.parameters()], [float(loss) for loss in losses]


def check(kind: str, dtype: torch.dtype) -> None:
    """Trains with staging and with blocking copies, and compares."""
    before = (Counted.submitted, Counted.written)
    staged, losses = train(kind, dtype, Counted)
    counts = (Counted.submitted - before[0], Counted.written - before[1])
    blocking, _ = train(kind, dtype, Blocking)
    differ = sum(not torch.equal(a, b) for a, b in zip(staged, blocking, strict=True))
    worst = max(float((a.double() - b.double()).abs().max()) for a, b in zip(staged, blocking, strict=True))
    say(f"{kind} {dtype}: {differ} of {len(staged)} tensors differ, worst {worst:.3g}; losses {losses[0]:.5f} to {losses[-1]:.5f}; staged {counts}")
    wanted = STEPS * len(staged)
    assert counts == (wanted, wanted), f"{counts} gradients and means were staged, wanted {wanted} of each"
    assert differ == 0, "staging and blocking copies give different parameters"
    assert all(loss == loss for loss in losses), f"losses {losses}"
    assert losses[-1] != losses[0], "nothing was trained"


def timed(spent: dict[str, float], what: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `call`, which adds its time to `spent`."""

    def run(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            spent[what] += time.perf_counter() - start

    return run


def timed_step(model: Any, x: torch.Tensor) -> tuple[float, float]:
    """Returns the seconds until the backward pass returns, and until the device is done."""
    if not CPU:
        torch.cuda.synchronize()
        marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        marks[0].record()
    start = time.perf_counter()
    model.zero_grad()
    model(x).square().mean().backward()
    returned = time.perf_counter() - start
    if CPU:
        return returned, returned
    marks[1].record()
    torch.cuda.synchronize()
    return returned, marks[0].elapsed_time(marks[1]) / 1e3


def measure(name: str, staging: type[Staging]) -> None:
    """Prints a row of the table of times."""
    width, layers, batch = (64, 4, 8) if CPU else (1024, 24, 4096)
    torch.manual_seed(3)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    session: Any = begin(staging)
    model: Any = DistributedDataParallel(nn.Sequential(*parts).to(device()), gradient_as_bucket_view=True)
    sluice.attach(model, session=session)
    spent: dict[str, float] = {}
    session.submit = timed(spent, "submit", session.submit)
    session.wait = timed(spent, "wait", session.wait)
    x = torch.randn(batch, width, device=device())
    rows = []
    for _ in range(WARM_UP + MEASURED):
        spent.update(submit=0.0, wait=0.0)
        times = timed_step(model, x)
        rows.append((spent["submit"], spent["wait"], *times))
    figures = [1e3 * statistics.median(column) for column in zip(*rows[WARM_UP:], strict=True)]
    count = sum(p.numel() for p in model.parameters())
    say(f"{name:9} {count / 1e6:6.1f} M" + "".join(f" {figure:12.2f}" for figure in figures))
    session.close()


def run_rank(folder: str) -> int:
    """Runs all checks as one rank. Returns how many failed."""
    faulthandler.dump_traceback_later(PATIENCE - 5.0, exit=True)
    torch.backends.cudnn.deterministic = True
    if not CPU:
        say(f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, {os.cpu_count()} processors")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=RANK, world_size=2)
    failed = 0
    for kind in ("ddp", "optimizer"):
        for dtype in (torch.float32, torch.bfloat16):
            try:
                check(kind, dtype)
            except AssertionError as failure:
                failed += 1
                say(f"FAILED: {kind} {dtype}: {failure}")
    say("times in ms per step, medians: in submit (blocks autograd), in wait, until backward returns, until the device is done")
    say(f"{'copies':9} {'size':>8} {'submit':>12} {'wait':>12} {'backward':>12} {'device':>12}")
    measure("blocking", Blocking)
    measure("staged", Counted)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder is None:
        sys.exit(start_ranks(arguments))
    try:
        failed = run_rank(arguments.folder)
    except BaseException:
        traceback.print_exc()
        failed = 1
    if failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # The other rank must not be waited for.


if __name__ == "__main__":
    main()
