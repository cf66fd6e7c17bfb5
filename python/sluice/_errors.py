# SPDX-License-Identifier: Apache-2.0
"""Exceptions of Sluice."""

from __future__ import annotations


class SluiceError(RuntimeError):
    """An error of a job. Its message says who, where, which value and what to do.

    Args:
        message: The text.
        code: As the attribute.
        rank: As the attribute.
        step: As the attribute.

    Attributes:
        code: The name of the kind of error, as gRPC has it: ``"INVALID_ARGUMENT"``, ``"UNAVAILABLE"``, ``"ABORTED"``, ...
        rank: The rank of this process; None if it has none yet.
        step: The step that was open; None before the first.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", rank: int | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.rank = rank
        self.step = step

    def located(self, rank: int, step: int | None, what: str) -> SluiceError:
        """Returns the same error with the rank, the step and the tensor in its message.

        Args:
            rank: The rank of this process.
            step: The step that is open; None before the first.
            what: The tensor or the call that failed.
        """
        where = f"rank {rank}" if step is None else f"rank {rank}, step {step}"
        message = f"{where}, {what}: {self}"
        return type(self)(message, code=self.code, rank=rank, step=step)


class RollbackError(SluiceError):
    """The job went back to a checkpoint. The session is over; a new one goes on from there."""


class ForkError(SluiceError):
    """A process that was forked from the one that made the session tried to use the session."""
