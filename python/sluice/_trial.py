# SPDX-License-Identifier: Apache-2.0
"""Runs a script unchanged, with the hook on each of its DistributedDataParallel models."""

from __future__ import annotations

import argparse
import functools
import pathlib
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from ._ddp import attach
from ._figures import Figures, show_bytes
from ._init import init, next_session
from ._session import LocalSession, Session, open_sessions

_USAGE = "python -m sluice.try [--uplink SPEC] [--downlink SPEC] (SCRIPT | -m MODULE) [ARGUMENTS...]"


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sluice.try",
        usage=_USAGE,
        description="Runs a PyTorch script unchanged. Its DistributedDataParallel models exchange their gradients through Sluice.",
        epilog="Under torchrun: torchrun --nproc-per-node 2 -m sluice.try train.py",
        allow_abbrev=False,
    )
    parser.add_argument("--uplink", metavar="SPEC", help="codec of gradients (default: int8)")
    parser.add_argument("--downlink", metavar="SPEC", help="codec of means (default: int8)")
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module as a script")
    parser.add_argument("script", help="the script or module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser.parse_args(words)


def _attach_all(uplink: str | None, downlink: str | None) -> list[Session]:
    """Lets the constructor of DDP attach each model. Returns the list of sessions, which grows."""
    from torch.nn.parallel import DistributedDataParallel

    sessions: list[Session] = []
    construct: Any = DistributedDataParallel.__init__

    @functools.wraps(construct)
    def construct_and_attach(self: Any, *arguments: Any, **options: Any) -> None:
        construct(self, *arguments, **options)
        session = next_session() if open_sessions() else init(uplink=uplink, downlink=downlink)
        sessions.append(attach(self, session=session))

    DistributedDataParallel.__init__ = construct_and_attach  # type: ignore[method-assign]
    return sessions


def summary(figures: Figures, world_size: int, alone: bool) -> str:
    """Returns three lines about one model: the traffic, that of DDP, and the time that the script waited."""
    # In a ring all-reduce, each rank sends each gradient twice, except for its own part.
    usual = figures.dense_bytes * 2 * (world_size - 1) / world_size if world_size > 1 else float(figures.dense_bytes)
    up = usual / figures.bytes_up if figures.bytes_up else 0.0
    down = usual / figures.bytes_down if figures.bytes_down else 0.0
    sent = "this process is alone; with other ranks, it would have sent" if alone else "rank 0 sent"
    wait = 1e3 * figures.exposed_seconds / figures.steps if figures.steps else 0.0
    return (
        f"sluice: in {figures.steps} steps, {sent} {show_bytes(figures.bytes_up)} and received {show_bytes(figures.bytes_down)} "
        f"(uplink {figures.uplink}, downlink {figures.downlink})\n"
        f"sluice: DDP would have sent and received {show_bytes(usual)}: {up:.1f}x and {down:.1f}x as much\n"
        f"sluice: the script waited {figures.exposed_seconds:.1f} s for exchanges, {wait:.1f} ms per step"
    )


def _tell(sessions: Sequence[Session]) -> None:
    if not sessions:
        print("sluice: the script created no DistributedDataParallel, so nothing was compressed", file=sys.stderr, flush=True)
    for session in sessions:
        if session.rank == 0 and session in open_sessions():
            print(summary(session.figures(), session.world_size, isinstance(session, LocalSession)), file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> None:
    """Runs the script that the command line names, and prints the figures of rank 0 when it has ended."""
    options = _parse(sys.argv[1:] if words is None else words)
    sessions = _attach_all(options.uplink, options.downlink)
    sys.argv[:] = [options.script, *options.arguments]
    try:
        if options.is_module:
            sys.path[0] = ""
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(pathlib.Path(options.script).resolve().parent)
            runpy.run_path(options.script, run_name="__main__")
    finally:
        _tell(sessions)
