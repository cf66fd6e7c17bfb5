# SPDX-License-Identifier: Apache-2.0
"""Followers: programs that read the parameters of a running job."""

from __future__ import annotations

import atexit
import dataclasses
import os
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from . import _sluice
from ._errors import ForkError, SluiceError
from ._init import TLS
from ._log_level import LogLevel, say
from ._patience import patiently

if TYPE_CHECKING:
    import torch

FollowedType = Literal["fp32", "bf16", "fp16"]

# By type: the number of the core, the type in NumPy, and its name in PyTorch. NumPy has no bfloat16.
_TYPES: dict[str, tuple[int, npt.DTypeLike, str]] = {
    "fp32": (0, np.float32, "float32"),
    "bf16": (1, np.uint16, "bfloat16"),
    "fp16": (2, np.float16, "float16"),
}
_open: weakref.WeakSet[Follower] = weakref.WeakSet()


@dataclasses.dataclass(frozen=True, eq=False)
class FollowedVersion:
    """A complete version of a job's parameters. It has memory of its own, which later versions leave alone.

    Attributes:
        step: The exchange of the job after which the parameters had these values.
        term: Grows when the job continues from a checkpoint. Steps may then repeat with other values.
        changed: Elements that the received differences replace. An element counts once for each difference that replaces it.
        received_bytes: Bytes of these differences.
    """

    step: int
    term: int
    changed: int
    received_bytes: int
    _type: str
    _rows: list[tuple[str, list[int], int]]
    _data: npt.NDArray[np.uint8]

    def state_dict(self) -> dict[str, Any]:
        """Returns the trained tensors by name, in the job's shapes and the follower's type. A scalar has the shape ``[1]``.

        They are PyTorch tensors in the host's memory, or NumPy arrays if PyTorch is not installed. NumPy has no bfloat16, so an
        array contains its bits as ``uint16``, which are the upper half of a float32: ``(a.astype(np.uint32) << 16).view(np.float32)``.
        All results share the memory of this version, and keep it. Buffers of the model are not part of a version.
        """
        _, dtype, torch_name = _TYPES[self._type]
        try:
            import torch
        except ImportError:
            return {name: part.view(dtype).reshape(shape) for name, shape, part in self._parts()}
        torch_type = getattr(torch, torch_name)
        return {name: torch.from_numpy(part).view(torch_type).reshape(shape) for name, shape, part in self._parts()}

    def load_into(self, model: torch.nn.Module) -> list[str]:
        """Copies the tensors into the parameters of a model, on any device, and converts them to the parameters' types.

        Buffers, such as BatchNorm's statistics, stay as they are.

        Args:
            model: A model whose parameters have the names and shapes of the job's tensors.

        Returns:
            The names of parameters that the job does not train. They stay as they are.

        Raises:
            SluiceError: The model lacks a tensor of the job, or has another shape. The model has not changed then.
        """
        import torch

        parameters = dict(model.named_parameters())
        tensors = self.state_dict()
        for name, tensor in tensors.items():
            if name not in parameters:
                raise SluiceError(
                    f"the job has the tensor {name}, and the model has no parameter of this name: it has {', '.join(list(parameters)[:5])}, ...",
                    code="INVALID_ARGUMENT",
                )
            shape = list(parameters[name].shape) or [1]
            if shape != list(tensor.shape):
                raise SluiceError(f"{name} has shape {list(tensor.shape)} in the job and {shape} in the model", code="INVALID_ARGUMENT")
        with torch.no_grad():
            for name, tensor in tensors.items():
                parameters[name].copy_(tensor.reshape(parameters[name].shape))
        return [name for name in parameters if name not in tensors]

    def _parts(self) -> list[tuple[str, list[int], npt.NDArray[np.uint8]]]:
        """Returns names, shapes and bytes of the tensors."""
        parts = []
        begin = 0
        for name, shape, size in self._rows:
            parts.append((name, shape, self._data[begin : begin + size]))
            begin += size
        return parts


class Follower:
    """Iterates over the versions of a running job's parameters, until the job ends. `follow` makes it.

    A loop that takes long gets a later version next, not each one. A follower is a context manager: it disconnects at the end
    of the block. A loop can be left and continued later. Ctrl-C ends the waiting, and the follower.

    The iteration raises `SluiceError` with the code ``UNAVAILABLE`` if a server did not answer for `patience` seconds,
    ``INVALID_ARGUMENT`` if the job does not offer the type, ``CANCELLED`` after `interrupt`, and otherwise with the server's reason.
    """

    def __init__(self, core: _sluice.Follower, type: str, quiet: bool) -> None:
        self._core = core
        self._type = type
        self._quiet = quiet
        self._pid = os.getpid()
        self._lock = threading.Lock()  # Held by the thread that uses the core.
        self._closed = False
        _open.add(self)

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> FollowedVersion:
        self._check_process()
        try:
            with self._lock:
                if self._closed:
                    raise SluiceError("this follower is closed: make another with sluice.follow", code="FAILED_PRECONDITION")
                found = patiently(self._next, self._drain_log, lambda _: self._core.interrupt())
        finally:
            self._drain_log()
            if self._closed:
                self._free()
        if found is None:
            raise StopIteration
        return found

    def _next(self) -> FollowedVersion | None:
        found = self._core.next()
        if found is None:
            return None
        rows = found.rows()
        data = np.empty(sum(size for _, _, size in rows), dtype=np.uint8)
        found.copy_to(data.ctypes.data)
        return FollowedVersion(found.step, found.term, found.changed, found.received_bytes, self._type, rows, data)

    def interrupt(self) -> None:
        """Makes an iteration that waits in another thread, and all later ones, raise `SluiceError` with the code ``CANCELLED``."""
        self._check_process()
        self._core.interrupt()

    def close(self) -> None:
        """Disconnects. Interrupts an iteration that waits in another thread. Versions stay valid."""
        if os.getpid() != self._pid or self._closed:
            return
        self._core.interrupt()
        self._closed = True
        self._free()

    def _free(self) -> None:
        # The thread that holds the lock calls this function again when it has released the lock.
        if self._lock.acquire(blocking=False):
            try:
                self._core.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkError(
                f"this follower belongs to process {self._pid}, which forked process {os.getpid()}: make another there",
                code="FAILED_PRECONDITION",
            )

    def _drain_log(self) -> None:
        for level, component, text in self._core.take_log():
            say(LogLevel(level), f"{component}: {text}", quiet=self._quiet)


def follow(
    address: str,
    *,
    type: FollowedType = "bf16",
    patience: float = 60.0,
    token_file: str = "",
    tls: TLS | None = None,
    quiet: bool = False,
) -> Follower:
    """Follows a running job, whose job file has a section ``followers``. The caller is not part of the job.

        for version in sluice.follow("10.0.0.1:7070"):
            version.load_into(model)

    Args:
        address: ``HOST:PORT`` of the job's shard 0, or of a relay for followers.
        type: The type of the values, to which the job rounds its parameters: ``"bf16"``, ``"fp16"`` or ``"fp32"``. The job must
            offer it.
        patience: Seconds to wait for a server that does not answer.
        token_file: The job's secret, as a path. ``$SLUICE_TOKEN_FILE`` overrides it.
        tls: Files that secure the connections.
        quiet: Print warnings and errors alone.

    Returns:
        The versions. Nothing is connected before the first one is asked for.

    Raises:
        SluiceError: The type is unknown, or a file is unusable.
    """
    if type not in _TYPES:
        raise SluiceError(f"type is {type!r}: use one of {', '.join(_TYPES)}", code="INVALID_ARGUMENT")
    tls = tls or TLS()
    token_file = os.environ.get("SLUICE_TOKEN_FILE") or token_file
    core = _sluice.Follower(address, _TYPES[type][0], patience, token_file, tls.cert, tls.key, tls.ca)
    return Follower(core, type, quiet)


def _close_all() -> None:
    for follower in list(_open):
        follower.close()


atexit.register(_close_all)
