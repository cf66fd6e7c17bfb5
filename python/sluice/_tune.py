# SPDX-License-Identifier: Apache-2.0
"""The momentum of an optimizer for the codecs in force."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _sluice
from ._session import Session

if TYPE_CHECKING:
    import torch


def _tune_group(group: dict[str, Any], session: Session) -> str:
    """Lowers the momentum of one group. Returns what it did, or nothing."""
    is_adam = "betas" in group
    momentum = float(group["betas"][0] if is_adam else group.get("momentum", 0.0))
    if momentum == 0:
        return ""
    figures = session.figures()
    lower = _sluice.momentum_with(figures.uplink, figures.downlink, momentum)
    if lower >= momentum:
        return ""
    if is_adam:
        # beta1 averages, and does not amplify: the rate stays.
        group["betas"] = (lower, *group["betas"][1:])
        return f"beta1 {momentum:g} -> {lower:g}"
    factor = (1 - lower) / (1 - momentum)
    for key in ("lr", "initial_lr"):
        if key in group:
            group[key] = group[key] * factor
    group["momentum"] = lower
    return f"momentum {momentum:g} -> {lower:g}, rate times {factor:.3g}"


def tune(optimizer: torch.optim.Optimizer, session: Session) -> None:
    """Lowers an optimizer's momentum where the session's codecs delay gradients, and prints one line.

    Codecs such as ``topk:1%`` and ``ternary`` send parts of a gradient in later steps, and momentum amplifies that delay.
    SGD and RMSprop keep ``lr / (1 - momentum)``; Adam and AdamW keep their rate, and get a lower beta1.
    Call it before a scheduler of learning rates is made. Codecs such as ``int8`` need nothing, nor
    does a session for `LocalSGD` or `DiLoCo`.

    Args:
        optimizer: Any optimizer of PyTorch.
        session: The session that exchanges its gradients.
    """
    if session._job.sends_weights:
        return  # An exchange comes after several steps, and does not delay them.
    changes = dict.fromkeys(filter(None, (_tune_group(group, session) for group in optimizer.param_groups)))
    if changes and session._place.rank == 0:
        print(f"sluice: {'; '.join(changes)}, because the codecs delay gradients (docs/compression.md, Momentum)", file=sys.stderr, flush=True)


def tune_all(optimizers: Iterable[torch.optim.Optimizer], schedulers: Iterable[Any], session: Session) -> None:
    """Tunes optimizers that have schedulers already: those go on with the new rates."""
    for optimizer in optimizers:
        tune(optimizer, session)
    for scheduler in schedulers:
        _adapt(scheduler)


def _adapt(scheduler: Any) -> None:
    for inner in getattr(scheduler, "_schedulers", ()):
        _adapt(inner)
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [group.get("initial_lr", base) for group, base in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True)]
