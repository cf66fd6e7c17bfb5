"""What the scripts of ranks have in common."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

import torch
import torch.distributed as dist

import sluice

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(os.environ["SLUICE_TEST_FOLDER"])


def say(**words: Any) -> None:
    """Tells the test something."""
    with (FOLDER / f"said-{RANK}").open("a") as file:
        file.write(json.dumps(words) + "\n")


def begin() -> None:
    """A process group over gloo, without a port to choose."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store", rank=RANK, world_size=SIZE)


def shard_pids(session: sluice.Session) -> list[int]:
    return [shard._process.pid for shard in session._shards]


def end() -> None:
    sys.stdout.flush()
    dist.destroy_process_group()
