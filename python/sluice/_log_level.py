# SPDX-License-Identifier: Apache-2.0
"""How important a log line is. The values are those of the core (include/sluice/session.h)."""

from __future__ import annotations

import enum


class LogLevel(enum.IntEnum):
    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
