# SPDX-License-Identifier: Apache-2.0
"""Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512): fragments of the parameters are exchanged in turns while training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ._tensors import laid_out

if TYPE_CHECKING:
    from ._session import Session


def begins_after(step: int, every: int, fragments: int) -> bool:
    """Whether an exchange begins after this step: exchange e begins after step floor(e * every / fragments), from e = 1 on."""
    return step > 0 and ((step + 1) * fragments - 1) // every > (step * fragments - 1) // every


def _part(values: torch.Tensor, offset: int, count: int) -> torch.Tensor:
    """Returns a view of elements that are next to each other in storage."""
    return values.as_strided((count,), (1,), values.storage_offset() + offset)


class Fragments:
    """The exchanges of a job that streams fragments, in the steps of one block.

    Args:
        session: The session, which has joined.
        parameters: The parameters in the order of the session's table, in float32.
        every: Steps between two exchanges of the same fragment.
        samples: Samples, or tokens, in each step.
    """

    def __init__(self, session: Session, parameters: Sequence[torch.Tensor], every: int, samples: int) -> None:
        job = session._job
        self._session = session
        self._parameters = parameters
        self._every, self._samples = every, samples
        self._fragments, self._delay, self._alpha = job.fragments, job.fragment_delay, job.merge_alpha
        self._parts: dict[int, list[tuple[int, int]]] = {}  # By tensor: where the parts of the open exchange begin, and their sizes.
        self._begun = 0  # The step after which it began; 0: there is none.
        self._behind = 0  # Exchanges that have closed without this rank.
        self.steps = 0  # Since the block began, or since `close`.

    def stepped(self) -> None:
        """Begins and ends the exchanges that are due after a step."""
        self.steps += 1
        if begins_after(self.steps, self._every, self._fragments):
            self._begin()
            self._begun = self.steps
        if self._begun > 0 and self.steps >= self._begun + self._delay:
            self._end(self._alpha)

    def close(self) -> None:
        """Ends the exchange in flight and exchanges each fragment once more. All ranks then have equal parameters."""
        if self._begun > 0:
            self._end(self._alpha)
        closing = self._fragments
        while closing > 0 or self._behind > 0:
            self._begin()
            self._end(0.0)
            closing -= 1
        self.steps = 0

    def _begin(self) -> None:
        session = self._session
        self._parts = {}
        for tensor, offset, count in session._live().parts_due():
            self._parts.setdefault(tensor, []).append((offset, count))
        if self.steps == 0 or self._behind > 0:
            session.skip()
            return
        steps = min(self.steps, self._every)
        session.set_work(steps * self._samples, steps)
        for tensor in sorted(self._parts, reverse=True):
            session.submit(tensor, session._published[tensor] - self._own(tensor))
        session._buffers.submit(session._live(), early=True)

    def _end(self, alpha: float) -> None:
        session = self._session
        self._begun = 0
        with torch.profiler.record_function("sluice.wait"):
            session.wait()
        with torch.profiler.record_function("sluice.apply"), torch.no_grad():
            for tensor, parts in self._parts.items():
                published = session._published[tensor]
                session.apply_update(tensor, published)
                own = self._own(tensor)
                for offset, count in parts:
                    mine, given = _part(own, offset, count), _part(published, offset, count)
                    if alpha > 0:
                        mine.mul_(alpha).add_(given, alpha=1 - alpha)
                    else:
                        mine.copy_(given)
                parameter = self._parameters[tensor]
                if own.data_ptr() != parameter.data_ptr():
                    parameter.copy_(own.reshape(parameter.shape))
        self._behind = max(self._behind - 1, session._last.steps_behind if session._last is not None else 0)
        session.end_step()

    def _own(self, tensor: int) -> torch.Tensor:
        """Returns this rank's values, laid out as the published ones: the parameter itself where it is."""
        return laid_out(self._parameters[tensor].detach(), self._session._rows[tensor])
