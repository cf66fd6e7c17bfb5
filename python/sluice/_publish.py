# SPDX-License-Identifier: Apache-2.0
"""The parameters that rank 0 gives to followers, in a job whose shards keep none."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._tensors import Row, laid_out

if TYPE_CHECKING:
    import torch

    from . import _sluice


class Published:
    """The trained parameters of a session. It does not keep them alive.

    A script changes its parameters between two steps, so they are complete when the next step begins or the session closes.
    """

    def __init__(self, rows: Sequence[Row], parameters: Sequence[torch.Tensor]) -> None:
        self._rows = list(rows)
        self._parameters = [weakref.ref(parameter) for parameter in parameters]
        self._step = 0  # The last step whose parameters were offered.

    def offer(self, core: _sluice.Session, step: int, *, is_last: bool = False) -> None:
        """Gives the parameters after a step to followers, if any wants them and no earlier call has done it.

        Args:
            core: The session.
            step: The last step that ended; 0 before the first.
            is_last: Whether no step follows.
        """
        if step == 0 or (step == self._step and not is_last) or not core.wants_weights(step, is_last):
            return
        self._step = step
        values = []
        for row, reference in zip(self._rows, self._parameters, strict=True):
            parameter = reference()
            if parameter is None:
                return  # The script has dropped its model.
            values.append(laid_out(parameter.detach(), row))
        core.publish_weights(step, [(value.data_ptr(), value.numel()) for value in values], is_last)
