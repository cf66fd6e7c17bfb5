# SPDX-License-Identifier: Apache-2.0
"""What the scripts of ranks have in common."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import sluice

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
_agent: list[dist.TCPStore] = []
FOLDER = pathlib.Path(os.environ["SLUICE_TEST_FOLDER"])


def say(**words: Any) -> None:
    """Tells the test something."""
    with (FOLDER / f"said-{RANK}").open("a") as file:
        file.write(json.dumps(words) + "\n")


def begin() -> None:
    """A process group over gloo, without a port to choose."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store", rank=RANK, world_size=SIZE)


def begin_without_group(name: str = "port") -> None:
    """A store as torchrun's agent has it, and no process group. Each name stands for a store of its own."""
    torch.set_num_threads(1)
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "127.0.0.1"}
    port = FOLDER / name
    if RANK == 0:
        _agent.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        (FOLDER / "port-new").write_text(str(_agent[-1].port))
        (FOLDER / "port-new").rename(port)
    while not port.exists():
        time.sleep(0.01)
    os.environ["MASTER_PORT"] = port.read_text()


def wait_for(path: pathlib.Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def shard_pids(session: sluice.Session) -> list[int]:
    return [shard._process.pid for shard in session._shards]


def message_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except sluice.SluiceError as error:
        return f"{error.code} {error}"
    return "no error"


def end() -> None:
    sys.stdout.flush()
    dist.destroy_process_group()
