# SPDX-License-Identifier: Apache-2.0
"""The end of a step: each mean is written as soon as it has arrived."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ._patience import POLL_SECONDS
from ._tensors import Row, element_type, target_of

if TYPE_CHECKING:
    import torch

    from . import _sluice
    from ._staging import Staging


def finish_step(
    core: _sluice.Session, staging: Staging, rows: Sequence[Row], means: Mapping[int, torch.Tensor], between: Callable[[], None]
) -> _sluice.StepResult:
    """Waits until the step is closed on all shards, and writes the means that have arrived meanwhile.

    Args:
        core: The session.
        staging: Writes the means of tensors on a GPU.
        rows: The rows of the tensor table.
        means: Tensors by number, as for `write_mean`. A tensor without a mean gets NaN.
        between: Called several times a second.
    """
    missing = dict(means)
    result = None
    while result is None:
        for tensor, has_mean in core.wait_for_tensors(POLL_SECONDS) if missing else ():
            if (mean := missing.pop(tensor, None)) is not None:
                _write(core, staging, tensor, rows[tensor], mean, has_mean)
        result = core.wait_for(0.0 if missing else POLL_SECONDS)
        between()
    for tensor, mean in missing.items():
        _write(core, staging, tensor, rows[tensor], mean, tensor not in result.without_mean)
    return result


def _write(core: _sluice.Session, staging: Staging, tensor: int, row: Row, mean: torch.Tensor, has_mean: bool) -> None:
    import torch

    with torch.profiler.record_function("sluice.apply"):
        if has_mean:
            write_mean(core, staging, tensor, row, mean, 1.0)
        else:
            mean.fill_(math.nan)  # A GradScaler must see that, to skip the step and lower its scale.


def write_mean(core: _sluice.Session, staging: Staging, tensor: int, row: Row, mean: torch.Tensor, scale: float) -> None:
    """Writes the mean of a tensor, times `scale`, into `mean`, a dense tensor of the row's shape."""
    if staging.holds(mean):
        staging.write_mean(tensor, row, mean, scale)
        return
    target = target_of(mean, row)
    core.apply(tensor, target.data_ptr(), target.numel(), element_type(target), scale)
    if target.data_ptr() != mean.data_ptr():
        mean.copy_(target.reshape(mean.shape))
