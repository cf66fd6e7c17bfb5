# SPDX-License-Identifier: Apache-2.0
"""The hand-over of gradients on a device, with a fake device whose copies end when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import await_that

import sluice
from sluice._staging import Staging
from sluice._tensors import describe, new


class FakeCopy:
    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self._over = threading.Event()
        self.error: Exception | None = None

    def end(self) -> None:
        self._run()
        self._over.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._over.set()

    def synchronize(self) -> None:
        assert self._over.wait(60.0), "the test did not end the copy"
        if self.error is not None:
            raise self.error


class FakeDevice:
    """Tensors of the host count as the device's. `immediate` ends each copy at once."""

    def __init__(self, *, immediate: bool = False) -> None:
        self.immediate = immediate
        self.copies: list[FakeCopy] = []

    def holds(self, tensor: torch.Tensor) -> bool:
        return True

    def new(self, row: Any, dtype: torch.dtype) -> torch.Tensor:
        return new(row, dtype).fill_(-1.0)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> FakeCopy:
        copy = FakeCopy(lambda: target.copy_(source))
        self.copies.append(copy)
        if self.immediate:
            copy.end()
        return copy

    def fetch(self, source: torch.Tensor, host: torch.Tensor, after: Any) -> FakeCopy:
        return self._copy(source, host)

    def store(self, host: torch.Tensor, target: torch.Tensor) -> FakeCopy:
        return self._copy(host, target)


ROW = describe("weight", torch.zeros(3))


class FakeCore:
    """Records what it is given: the tensor's number, and the buffer's values at that time."""

    def __init__(self) -> None:
        self.staging: Any = None
        self.taken: list[tuple[int, list[float]]] = []
        self.applied: list[list[float]] = []

    def _host(self, tensor: int) -> torch.Tensor:
        host: torch.Tensor = self.staging._buffers[tensor, torch.float32].host
        return host

    def submit(self, tensor: int, *_: Any) -> None:
        self.taken.append((tensor, self._host(tensor).tolist()))

    def apply(self, tensor: int, *_: Any) -> None:
        self.applied.append(self._host(tensor).tolist())


def prepare() -> tuple[Any, FakeDevice, Any]:
    core: Any = FakeCore()
    device = FakeDevice()
    core.staging = Staging(core, device)
    return core, device, core.staging


def test_submit_does_not_wait_and_the_core_gets_complete_copies_in_order() -> None:
    core, device, staging = prepare()
    staging.submit(1, torch.full((3,), 1.0), ROW, 1.0)
    staging.submit(0, torch.full((3,), 2.0), ROW, 1.0)
    assert core.taken == []
    device.copies[1].end()
    assert core.taken == []  # The first copy has not ended.
    device.copies[0].end()
    staging.drain(lambda: None)
    assert core.taken == [(1, [1.0] * 3), (0, [2.0] * 3)]
    staging.end()


def test_a_wait_for_copies_lets_signals_act() -> None:
    core, device, staging = prepare()
    staging.submit(0, torch.ones(3), ROW, 1.0)
    calls: list[int] = []

    def between() -> None:
        calls.append(len(core.taken))
        if len(calls) == 2:
            device.copies[0].end()

    staging.drain(between)
    assert calls[:2] == [0, 0] and len(core.taken) == 1
    staging.end()


def test_a_buffer_is_not_written_while_a_copy_from_it_is_in_flight() -> None:
    core, device, staging = prepare()
    mean = torch.zeros(3)
    staging.write_mean(0, ROW, mean, 1.0)
    assert len(core.applied) == 1
    second = threading.Thread(target=staging.write_mean, args=(0, ROW, mean, 1.0))
    second.start()
    second.join(0.2)
    assert second.is_alive() and len(core.applied) == 1
    device.copies[0].end()
    second.join()
    assert len(core.applied) == 2
    staging.end()


def test_a_failed_copy_reaches_the_trainer_at_its_next_call() -> None:
    core, device, staging = prepare()
    staging.submit(0, torch.ones(3), ROW, 1.0)
    device.copies[0].fail(RuntimeError("an illegal memory access"))
    with pytest.raises(sluice.SluiceError, match="weight could not be copied from the device: an illegal memory access"):
        staging.drain(lambda: None)
    with pytest.raises(sluice.SluiceError, match="illegal memory access"):
        staging.submit(0, torch.ones(3), ROW, 1.0)
    assert core.taken == []
    staging.end()


def test_the_end_leaves_no_thread_and_hands_nothing_over() -> None:
    core, device, staging = prepare()
    staging.submit(0, torch.ones(3), ROW, 1.0)
    ending = threading.Thread(target=staging.end)
    ending.start()
    await_that(lambda: staging._ended, "the end has begun")
    device.copies[0].end()
    ending.join()
    assert not staging._thread.is_alive() and core.taken == []


def _step(device: FakeDevice | None) -> list[torch.Tensor]:
    parameters = [torch.zeros(4, 3), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.zeros(()), torch.zeros(7)]
    types = [torch.float32, torch.bfloat16, torch.float64, torch.float16]
    parameters = [p.to(dtype) for p, dtype in zip(parameters, types, strict=True)]
    session = sluice.init(rank=0, world_size=1, uplink="none", downlink="none", quiet=True)
    if device is not None:
        session._staging = Staging(session._core, device)  # type: ignore[arg-type]
    session.join([(f"p{i}", p) for i, p in enumerate(parameters)])
    torch.manual_seed(1)
    means = []
    for _ in range(2):
        gradients = [torch.randn(p.shape).to(p.dtype) for p in parameters]
        for i in reversed(range(4)):
            session.submit(i, gradients[i], 0.5)
        session.wait(dict(enumerate(gradients)))
        again = torch.zeros(4, 3)
        session.apply(0, again, 2.0)
        means += [*gradients, again]
    session.close()
    return means


def test_types_layouts_and_scales_give_the_same_means_as_without_staging() -> None:
    for found, expected in zip(_step(FakeDevice(immediate=True)), _step(None), strict=True):
        assert torch.equal(found, expected) and bool(found.any())
