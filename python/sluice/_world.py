# SPDX-License-Identifier: Apache-2.0
"""Who takes part: ranks, hosts, and the store through which the processes of a job find each other."""

from __future__ import annotations

import dataclasses
import datetime
import os
import socket
import sys
import time
from typing import Any, Protocol

from ._errors import SluiceError


_own_store: list[Any] = []  # The store of torchrun's environment. Rank 0 may be its server, so it stays open.


class Store(Protocol):
    """What is needed of a store of ``torch.distributed``."""

    def set(self, key: str, value: Any, /) -> Any: ...
    def get(self, key: str, /) -> bytes: ...
    def wait(self, keys: list[str], timeout: datetime.timedelta, /) -> Any: ...
    def add(self, key: str, value: int, /) -> int: ...
    def delete_key(self, key: str, /) -> bool: ...


@dataclasses.dataclass(frozen=True)
class World:
    """The ranks of a job."""

    rank: int
    size: int


def _distributed() -> Any:
    """Returns torch.distributed where a script has initialized it, else None."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None) if torch is not None else None
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise SluiceError(f"the environment variable {name} is {text!r}, and must be a number", code="INVALID_ARGUMENT") from None


def find_world(rank: int | None, world_size: int | None) -> World:
    """Takes the arguments, else what torch.distributed says, else $RANK and $WORLD_SIZE, else Slurm's; else one process."""
    if (rank is None) != (world_size is None):
        raise SluiceError("rank and world_size go together: give both or neither", code="INVALID_ARGUMENT")
    if rank is None or world_size is None:
        distributed = _distributed()
        if distributed is not None:
            return World(distributed.get_rank(), distributed.get_world_size())
        for rank_name, size_name in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
            rank, world_size = _number(rank_name), _number(size_name)
            if rank is not None and world_size is not None:
                break
        else:
            return World(0, 1)
    if not 0 <= rank < world_size:
        raise SluiceError(f"rank {rank} is not one of {world_size} ranks: they begin with 0", code="INVALID_ARGUMENT")
    return World(rank, world_size)


def open_store(world: World, purpose: str, remedy: str = "") -> Store:
    """Returns the store of torch.distributed, or torchrun's, with keys of its own for the purpose, which all ranks name alike.

    Raises:
        SluiceError: There is none. The message ends with `remedy`.
    """
    try:
        import torch.distributed as dist
        from torch.distributed.rendezvous import rendezvous
    except ImportError:
        raise SluiceError(
            f"the {world.size} ranks find each other through PyTorch's store, and PyTorch is not installed: install it{remedy}",
            code="FAILED_PRECONDITION",
        ) from None
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
    elif "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        if not _own_store:
            _own_store.append(next(rendezvous("env://", world.rank, world.size))[0])
        store = _own_store[0]
    else:
        raise SluiceError(
            f"the {world.size} ranks have no way to find each other: start them with torchrun, or call "
            f"torch.distributed.init_process_group first{remedy}",
            code="FAILED_PRECONDITION",
        )
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefixed: Store = dist.distributed_c10d.PrefixStore(f"sluice/{restart}/{purpose}", store)
    return prefixed


def find_hosts(world: World, store: Store, limit: float) -> list[str]:
    """Returns the name of each rank's host. Waits until all ranks have said theirs, for `limit` seconds.

    Raises:
        SluiceError: A rank has not come. The message names it.
    """
    store.set(f"host/{world.rank}", socket.gethostname())
    deadline = time.monotonic() + limit
    for rank in range(world.size):
        left = max(deadline - time.monotonic(), 0.01)
        try:
            store.wait([f"host/{rank}"], datetime.timedelta(seconds=left))
        except RuntimeError as failure:
            raise SluiceError(
                f"rank {world.rank} waited {limit:g} s (join_timeout) for rank {rank}, which has not called sluice.init or "
                f"sluice.attach: see its own output, or raise join_timeout ({failure})",
                code="UNAVAILABLE",
                rank=world.rank,
            ) from None
    return [store.get(f"host/{rank}").decode() for rank in range(world.size)]
