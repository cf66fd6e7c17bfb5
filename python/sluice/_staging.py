# SPDX-License-Identifier: Apache-2.0
"""Copies gradients from a GPU to the core, and means back, without a wait for the GPU's compute stream."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ._errors import SluiceError
from ._tensors import Row, check_gradient, element_type, host_type, new

if TYPE_CHECKING:
    import torch

    from . import _sluice

_POLL_SECONDS = 0.05  # The interval at which a thread that waits for copies handles signals.
_COPY_SECONDS = 600.0  # If copies take longer, the device is assumed to hang.


class Event(Protocol):
    """A point in the order of a device's work."""

    def synchronize(self) -> None:
        """Waits on the host until the device has reached the point."""
        ...


class Device(Protocol):
    """What staging needs of GPUs. Tests have a fake one."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor is in a device's memory."""
        ...

    def new(self, row: Row, dtype: torch.dtype) -> torch.Tensor:
        """Returns pinned memory of the host for a tensor as the row says."""
        ...

    def fetch(self, source: torch.Tensor, host: torch.Tensor, after: Event | None) -> Event:
        """Starts a copy into `host` that waits for the compute stream's present work and for `after`. Returns its end."""
        ...

    def store(self, host: torch.Tensor, target: torch.Tensor) -> Event:
        """Starts a copy into `target` as part of the compute stream. Returns its end."""
        ...


class Cuda:
    """The GPUs that PyTorch calls ``cuda``."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def new(self, row: Row, dtype: torch.dtype) -> torch.Tensor:
        return new(row, dtype, pinned=True)

    def fetch(self, source: torch.Tensor, host: torch.Tensor, after: Any) -> Event:
        import torch

        stream: Any = torch.cuda.Stream  # PyTorch leaves its type open.
        side = self._streams.get(source.device)
        if side is None:
            side = self._streams[source.device] = stream(source.device)
        side.wait_stream(torch.cuda.current_stream(source.device))
        if after is not None:
            side.wait_event(after)
        with torch.cuda.stream(side):
            # A copy between devices that also changes the type or the layout would go through pageable memory.
            if source.dtype != host.dtype or source.stride() != host.stride():
                source = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=source.device).copy_(source)
            host.copy_(source, non_blocking=True)
            return self._end_of(side)

    def store(self, host: torch.Tensor, target: torch.Tensor) -> Event:
        import torch

        stream = torch.cuda.current_stream(target.device)
        if target.dtype == host.dtype and target.stride() == host.stride():
            target.copy_(host, non_blocking=True)
        else:
            here = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=target.device)
            target.copy_(here.copy_(host, non_blocking=True))
        return self._end_of(stream)

    @staticmethod
    def _end_of(stream: Any) -> Event:
        import torch

        event: Any = torch.cuda.Event
        end: Event = event(blocking=True)  # The waiting thread sleeps, and leaves its processor to the encoder.
        stream.record_event(end)
        return end


@dataclasses.dataclass
class _Buffer:
    """Pinned memory of one tensor. The gradient passes through it, and then the mean."""

    host: torch.Tensor
    last: Event | None = None  # The end of the last copy from or to it.


@dataclasses.dataclass
class _Copy:
    """A copy that has started, of a gradient that the core does not have yet."""

    tensor: int
    name: str
    buffer: _Buffer
    end: Event
    scale: float
    source: torch.Tensor  # This reference keeps PyTorch from reusing the memory before the copy has ended.


class Staging:
    """The gradients of one session that lie on a GPU.

    Each tensor has one buffer of pinned host memory, from its first gradient until the session ends. PyTorch may round the
    size of each up to a power of two. A thread, which starts with the first gradient, hands each buffer to the core when the
    copy into it has ended.
    """

    def __init__(self, core: _sluice.Session, device: Device | None = None) -> None:
        self._core = core
        self._device = device or Cuda()
        self._buffers: dict[tuple[int, torch.dtype], _Buffer] = {}
        self._copies: collections.deque[_Copy] = collections.deque()
        self._changed = threading.Condition()  # Guards `_copies` and `_failure`.
        self._failure: tuple[str, Exception] | None = None
        self._handing_over = threading.Lock()  # The core takes gradients from one thread at a time. Guards `_ended`.
        self._ended = False
        self._thread: threading.Thread | None = None

    def holds(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor has to go through staging."""
        return self._device.holds(tensor)

    def submit(self, tensor: int, gradient: torch.Tensor, row: Row, scale: float) -> None:
        """Starts the copy of a gradient. A thread passes it to the core when the copy has ended. Does not wait.

        Raises:
            SluiceError: The gradient cannot be exchanged, or an earlier one could not be handed over.
        """
        check_gradient(gradient, row)
        self.check()
        source = gradient.detach().reshape(row[1])
        buffer = self._buffer(tensor, row, host_type(source))
        buffer.last = self._device.fetch(source, buffer.host, buffer.last)
        with self._changed:
            self._copies.append(_Copy(tensor, row[0], buffer, buffer.last, scale, source))
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sluice-staging", daemon=True)
            self._thread.start()

    def submit_here(self, tensor: int, host: torch.Tensor, _: Row, scale: float) -> None:
        """Passes the core a gradient that is in host memory, with the strides of the row. Does not copy it."""
        with self._handing_over:
            self._core.submit(tensor, host.data_ptr(), host.numel(), element_type(host), scale)

    def write_mean(self, tensor: int, row: Row, mean: torch.Tensor, scale: float) -> None:
        """Starts the copy of a mean, times `scale`, into a tensor on the device. Waits only for copies of the same buffer."""
        target = mean.detach().reshape(row[1])
        buffer = self._buffer(tensor, row, host_type(target))
        if buffer.last is not None:
            buffer.last.synchronize()
        host = buffer.host
        self._core.apply(tensor, host.data_ptr(), host.numel(), element_type(host), scale)
        buffer.last = self._device.store(host, target)

    def drain(self, between: Callable[[], None]) -> None:
        """Waits until the core has all gradients.

        Args:
            between: Called several times a second.

        Raises:
            SluiceError: A gradient could not be handed over, or its copy does not end.
        """
        began = time.monotonic()
        while True:
            with self._changed:
                if not self._copies or self._failure is not None:
                    break
                self._changed.wait(_POLL_SECONDS)
            between()
            if time.monotonic() - began > _COPY_SECONDS:
                raise SluiceError(
                    f"the device has not copied a gradient in {_COPY_SECONDS:.0f} s: see nvidia-smi and the system's log",
                    code="DEADLINE_EXCEEDED",
                )
        self.check()

    def check(self) -> None:
        """Raises what kept the thread from handing a gradient over."""
        with self._changed:
            failure = self._failure
        if failure is None:
            return
        if isinstance(failure[1], SluiceError):
            raise failure[1]
        raise SluiceError(f"{failure[0]} could not be copied from the device: {failure[1]}", code="INTERNAL") from failure[1]

    def end(self) -> None:
        """Ends the thread. The core gets no gradient afterwards; its buffers stay as they are."""
        with self._handing_over:
            self._ended = True
        with self._changed:
            self._changed.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)  # If the device hangs, the thread ends with the process.

    def free(self) -> None:
        """Frees the buffers, once the core does not read them any more."""
        self._buffers.clear()
        with self._changed:
            self._copies.clear()

    def _buffer(self, tensor: int, row: Row, dtype: torch.dtype) -> _Buffer:
        buffer = self._buffers.get((tensor, dtype))
        if buffer is None:
            buffer = self._buffers[tensor, dtype] = _Buffer(self._device.new(row, dtype))
        return buffer

    def _run(self) -> None:
        while self._hand_over():
            pass

    def _hand_over(self) -> bool:
        """Waits for a gradient and hands it over. Returns whether more can follow."""
        with self._changed:
            while not self._copies and not self._ended:
                self._changed.wait()
            if self._ended:
                return False
            copy = self._copies[0]
        failure: Exception | None = None
        try:
            copy.end.synchronize()
            with self._handing_over:
                if self._ended:
                    return False
                host = copy.buffer.host
                self._core.submit(copy.tensor, host.data_ptr(), host.numel(), element_type(host), copy.scale)
        except Exception as error:  # noqa: BLE001
            failure = error
        with self._changed:
            if failure is not None:
                self._failure = (copy.name, failure)
                self._copies.clear()
            elif self._copies:
                self._copies.popleft()
            self._changed.notify_all()
        return failure is None
