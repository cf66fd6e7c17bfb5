# SPDX-License-Identifier: Apache-2.0
"""Log lines of the package. The values of their levels are those of the core (include/sluice/session.h)."""

from __future__ import annotations

import enum
import sys


class LogLevel(enum.IntEnum):
    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


def say(level: LogLevel, text: str, *, quiet: bool) -> None:
    """Prints a line to stderr. With `quiet`, it prints only warnings and errors."""
    if level > LogLevel.INFO or not quiet:
        print(f"sluice: {level.name} {text}", file=sys.stderr, flush=True)
