# SPDX-License-Identifier: Apache-2.0
"""Exact broadcasts through the store in which the ranks find each other."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._errors import SluiceError
from ._ranks import own_world
from ._tensors import fill, raw, sha256
from ._world import Store, World, open_store

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 20  # Bytes of one value. PyTorch's TCPStore refuses values of more than 8 MiB.
_WINDOW = 4  # Chunks that are in the store at the same time.
_BATCH = 16 << 20  # Bytes of small tensors that are sent together.
_PATIENCE = 1800.0  # Seconds to wait for another rank, as torch.distributed's.
_numbers = itertools.count()  # All ranks make their broadcasts in the same order.


class _Stream:
    """Messages from one rank to all others. The store holds at most `_WINDOW` chunks of them."""

    def __init__(self, world: World, root: int) -> None:
        if not 0 <= root < world.size:
            raise SluiceError(f"root_rank {root} is not one of {world.size} ranks: they begin with 0", code="INVALID_ARGUMENT")
        self.world = world
        self.root = root
        self._store: Store = open_store(world, f"broadcast/{next(_numbers)}")
        self._chunks = 0

    def _take(self, key: str, whose: str) -> bytes:
        """Returns the value of a key once it is there."""
        check = getattr(self._store, "check", None)  # PyTorch 1.13 has none, and `get` waits.
        deadline = time.monotonic() + _PATIENCE
        pause = 0.0005
        while check is not None and not check([key]):
            if time.monotonic() > deadline:
                raise SluiceError(
                    f"rank {self.world.rank} has waited {_PATIENCE:.0f} s for {whose} in a broadcast: all ranks must make the same "
                    "broadcasts in the same order",
                    code="DEADLINE_EXCEEDED",
                    rank=self.world.rank,
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return bytes(self._store.get(key))

    def send(self, data: bytes) -> None:
        """Sends a message. Only the root calls it."""
        framed = len(data).to_bytes(8, "little") + data
        for begin in range(0, len(framed), _CHUNK):
            if self._chunks >= _WINDOW:
                self._await_taken(self._chunks - _WINDOW)
            self._store.set(f"chunk/{self._chunks}", framed[begin : begin + _CHUNK])
            self._chunks += 1

    def _await_taken(self, chunk: int) -> None:
        self._take(f"taken/{chunk}", "the other ranks")
        self._store.delete_key(f"taken/{chunk}")

    def receive(self) -> bytes:
        """Returns the next message. The last rank that reads a chunk removes it from the store."""
        data = bytearray()
        while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
            chunk, self._chunks = self._chunks, self._chunks + 1
            data += self._take(f"chunk/{chunk}", f"rank {self.root}")
            if self._store.add(f"readers/{chunk}", 1) == self.world.size - 1:
                self._store.delete_key(f"chunk/{chunk}")
                self._store.delete_key(f"readers/{chunk}")
                self._store.set(f"taken/{chunk}", b"1")
        return bytes(data[8:])

    def gather(self, answer: str) -> list[str]:
        """Gives the root an answer of every other rank."""
        if self.world.rank != self.root:
            self._store.set(f"answer/{self.world.rank}", answer)
            return []
        answers = []
        for rank in range(self.world.size):
            if rank != self.root:
                answers.append(self._take(f"answer/{rank}", f"rank {rank}").decode())
                self._store.delete_key(f"answer/{rank}")
        return answers

    def finish(self) -> None:
        """The root waits until the others have read everything, and rank 0, which may be the store's server, until the root has."""
        if self.world.rank == self.root:
            for chunk in range(max(0, self._chunks - _WINDOW), self._chunks):
                self._await_taken(chunk)
            if self.root != 0:
                self._store.set("done", b"1")
        elif self.world.rank == 0:
            self._take("done", f"rank {self.root}")
            self._store.delete_key("done")


class _Guard:
    """Turns the store's errors into those of Sluice."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, SluiceError):
            raise SluiceError(
                f"rank {self._rank}: the store through which the ranks find each other failed in a broadcast: {error}",
                code="UNAVAILABLE",
                rank=self._rank,
            ) from error


def _named(tensors: Any) -> list[tuple[str, torch.Tensor]]:
    """Returns the tensors of a module, a state_dict or pairs, each once, in order."""
    import torch

    pairs: Iterable[Any]
    if isinstance(tensors, torch.nn.Module):
        pairs = itertools.chain(tensors.named_parameters(), tensors.named_buffers())
    elif isinstance(tensors, Mapping):
        pairs = tensors.items()
    else:
        pairs = tensors
    found: list[tuple[str, torch.Tensor]] = []
    for name, tensor in pairs:
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise SluiceError(
                f"broadcast_parameters: {name} is a {type(tensor).__name__} and no tensor: use broadcast_object for it",
                code="INVALID_ARGUMENT",
            )
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            raise SluiceError(f"broadcast_parameters: {name} is no dense tensor with data", code="INVALID_ARGUMENT")
        found.append((str(name), tensor))
    return found


def _batches(tensors: list[tuple[str, torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
    batch: list[torch.Tensor] = []
    size = 0
    for _, tensor in tensors:
        own = tensor.numel() * tensor.element_size()
        if batch and size + own > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(tensor)
        size += own
    if batch:
        yield batch


def _difference(own: list[list[Any]], wanted: list[list[Any]], stream: _Stream) -> str:
    """Returns how a rank's tensors differ from the root's, or nothing."""
    where = f"rank {stream.world.rank}"
    for (name, dtype, shape), (other, other_dtype, other_shape) in zip(own, wanted, strict=False):
        if name != other:
            return f"{where} has {name} in the place of {other} of rank {stream.root}"
        if (dtype, shape) != (other_dtype, other_shape):
            return f"{name} has shape {tuple(shape)} and {dtype} on {where}, and {tuple(other_shape)} and {other_dtype} on rank {stream.root}"
    if len(own) != len(wanted):
        more = own[len(wanted)] if len(own) > len(wanted) else wanted[len(own)]
        return f"{where} has {len(own)} tensors, and rank {stream.root} has {len(wanted)}: {more[0]} is not on both"
    return ""


def broadcast_parameters(
    tensors: torch.nn.Module | Mapping[str, Any] | Iterable[tuple[str, torch.Tensor]], root_rank: int = 0
) -> None:
    """Gives all ranks the root's parameters and buffers, bit for bit. Waits for all ranks.

    Ranks compare a sha256 first, so equal values do not travel. Others go through the store of ``torch.distributed`` or
    ``torchrun``: the root sends them once, and every other rank reads them.

    Args:
        tensors: A module, a ``state_dict``, or pairs of names and tensors, the same on all ranks. They are written in place,
            and may have any data type, shape and device.
        root_rank: The rank whose values all take.

    Raises:
        SluiceError: The ranks have different tensors; the message names the first, and all ranks raise it. Or a rank has not
            come for 30 minutes, or the store has gone.
    """
    world = own_world()
    wrong = ""
    found: list[tuple[str, torch.Tensor]] = []
    try:
        found = _named(tensors)
    except SluiceError as failure:
        if world.size == 1:
            raise
        wrong = f"on rank {world.rank}, {str(failure).removeprefix('broadcast_parameters: ')}"  # All ranks raise it.
    if world.size == 1:
        return
    table = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in found]
    digest = sha256([tensor for _, tensor in found]).hex()
    with _Guard(world.rank):
        stream = _Stream(world, root_rank)
        if world.rank == root_rank:
            stream.send(json.dumps([table, digest]).encode())
            answers = stream.gather("")
            verdict = wrong or next((answer for answer in answers if answer not in ("same", "other")), "other" if "other" in answers else "same")
            stream.send(verdict.encode())
        else:
            wanted, root_digest = json.loads(stream.receive())
            stream.gather(wrong or _difference(table, wanted, stream) or ("same" if digest == root_digest else "other"))
            verdict = stream.receive().decode()
        if verdict == "other":
            _send_values(stream, found)
        stream.finish()
    if verdict not in ("same", "other"):
        raise SluiceError(f"broadcast_parameters: {verdict}", code="INVALID_ARGUMENT", rank=world.rank)


def _send_values(stream: _Stream, tensors: list[tuple[str, torch.Tensor]]) -> None:
    for batch in _batches(tensors):
        if stream.world.rank == stream.root:
            stream.send(b"".join(raw(tensor) for tensor in batch))
            continue
        data = memoryview(stream.receive())
        begin = 0
        for tensor in batch:
            end = begin + tensor.numel() * tensor.element_size()
            fill(tensor, data[begin:end])
            begin = end


def broadcast_object(obj: Any = None, root_rank: int = 0) -> Any:
    """Returns the root's object on all ranks. Waits for all ranks.

    The object is pickled, so all ranks must trust each other. Its tensors arrive bit for bit, in host memory. It is held in
    memory as a whole; `broadcast_parameters` is the better way for large tensors.

    Args:
        obj: The object that the root sends. The other ranks' argument does not matter.
        root_rank: The rank that sends.

    Raises:
        SluiceError: The root cannot pickle the object; all ranks raise it. Or as `broadcast_parameters`.
    """
    import torch

    world = own_world()
    if world.size == 1:
        return obj
    with _Guard(world.rank):
        stream = _Stream(world, root_rank)
        if world.rank == root_rank:
            buffer = io.BytesIO()
            try:
                torch.save(obj, buffer)
                message = b"+" + buffer.getvalue()
            except Exception as failure:  # noqa: BLE001
                message = f"-{type(failure).__name__}: {failure}".encode()
            stream.send(message)
        else:
            message = stream.receive()
        stream.finish()
    if message[:1] == b"-":
        raise SluiceError(
            f"broadcast_object: rank {root_rank} cannot pickle the object: {message[1:].decode()}",
            code="INVALID_ARGUMENT",
            rank=world.rank,
        )
    if world.rank == root_rank:
        return obj
    return torch.load(io.BytesIO(message[1:]), map_location="cpu", weights_only=False)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives all ranks the root's optimizer state and options, bit for bit. Waits for all ranks.

    Args:
        optimizer: An optimizer over the same parameters on all ranks, also a `DistributedOptimizer`.
        root_rank: The rank whose state all take.

    Raises:
        SluiceError: The root's state does not fit this rank's parameters, or as `broadcast_object`.
    """
    world = own_world()
    state = broadcast_object(optimizer.state_dict(), root_rank)
    if world.rank == root_rank:
        return
    try:
        optimizer.load_state_dict(state)
    except ValueError as failure:
        raise SluiceError(
            f"rank {world.rank}: the optimizer state of rank {root_rank} does not fit: {failure}",
            code="INVALID_ARGUMENT",
            rank=world.rank,
        ) from None
    _undo_casts(optimizer, state)


def _undo_casts(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """`load_state_dict` casts state to the parameter's data type. The state must keep the root's."""
    import torch

    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, value in state["state"].get(number, {}).items():
            loaded = optimizer.state[parameter][key]
            if isinstance(value, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(loaded.device)
