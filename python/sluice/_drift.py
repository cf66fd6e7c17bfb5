# SPDX-License-Identifier: Apache-2.0
"""Checksums of the parameters. The ranks average them with the buffers, and each compares the means with its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_NAME = "sluice.checksums"
_MODULUS = 4093  # Float32 adds numbers below it exactly.
_SHOWN = 4


class Checksums:
    """One checksum for each parameter: the sum of its values' bits. Their row in the tensor table is that of a buffer."""

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]]) -> None:
        import torch

        self.values = torch.zeros(max(len(named), 1))
        self.row = (_NAME, self.values)
        self.differing = ""  # For messages.
        self.told = False
        self._named = list(named)
        self._own: torch.Tensor | None = None  # What this rank has submitted in the step that is open.

    def update(self) -> None:
        """Recomputes the checksums."""
        import torch

        types = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        sums = [
            tensor.detach().contiguous().view(types[tensor.element_size()]).sum(dtype=torch.int64).cpu() % _MODULUS for _, tensor in self._named
        ]
        self._own = torch.stack(sums).to(torch.float32)
        self.values.copy_(self._own)

    def compare(self, world_size: int) -> bool:
        """Returns whether a parameter differs between ranks, now that `values` has the means. Remembers which."""
        import torch

        own, self._own = self._own, None
        if own is None:
            return False
        # A checksum that differs on one rank moves the mean by at least 1 / world_size.
        far = torch.nonzero((own - self.values).abs() > 0.25 / world_size).flatten().tolist()
        if far:
            names = [self._named[i][0] for i in far[:_SHOWN]]
            self.differing = ", ".join(names) + (f" and {len(far) - _SHOWN} more" if len(far) > _SHOWN else "")
        return bool(far)
