# SPDX-License-Identifier: Apache-2.0
"""Buffers of a model, such as BatchNorm's statistics, which the ranks average at intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _sluice
from ._drift import Checksums
from ._tensors import FLOAT32, Row, describe, element_type, laid_out, to_host

if TYPE_CHECKING:
    import torch


def averaged_buffers(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Returns the buffers of a model that ranks can average: those that its ``state_dict`` contains, of a floating-point type.

    A buffer with a value that is not finite, such as a mask, is a constant.
    """
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name in module._non_persistent_buffers_set or not buffer.is_floating_point() or buffer.numel() == 0:
                continue
            if bool(buffer.isfinite().all()):
                found.setdefault(id(buffer), (f"{prefix}.{name}" if prefix else name, buffer))
    return list(found.values())


class Buffers:
    """The rows of a tensor table after those of the parameters."""

    def __init__(self, first: int, named: Sequence[tuple[str, torch.Tensor]], checksums: Checksums | None = None) -> None:
        named = [*named, checksums.row] if checksums else named
        self.checksums = checksums
        self.tensors = [buffer for _, buffer in named]
        self.rows: list[Row] = [(*describe(name, buffer)[:4], True) for name, buffer in named]
        self._first = first
        self._held: list[torch.Tensor] = []  # What the core reads until the step ends.
        self._early = False  # `submit` was called early in the step that is open.

    def submit(self, core: _sluice.Session, *, early: bool = False) -> None:
        """Hands the values over if they are due in this step.

        With `early`, it hands over copies, because training goes on before the step ends. The next call then does nothing.
        """
        if self._early:
            self._early = False
            return
        self._early = early
        if not self.rows or not core.buffers_due():
            return
        if self.checksums:
            self.checksums.update()
        here = [to_host(buffer.detach(), row) for buffer, row in zip(self.tensors, self.rows, strict=True)]
        self._held = [values.clone() for values in here] if early else here
        for i, host in enumerate(self._held):
            core.submit(self._first + i, host.data_ptr(), host.numel(), element_type(host), 1.0)

    def apply(self, core: _sluice.Session) -> None:
        """Writes the means into the buffers. All ranks then hold equal values."""
        self._held = []
        for i, (buffer, row) in enumerate(zip(self.tensors, self.rows, strict=True)):
            values = buffer.detach()
            target = laid_out(values, row)  # Elements without a mean stay as they are.
            core.apply(self._first + i, target.data_ptr(), target.numel(), FLOAT32, 1.0)
            if target.data_ptr() != values.data_ptr():
                values.copy_(target.reshape(values.shape))
