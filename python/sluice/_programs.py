# SPDX-License-Identifier: Apache-2.0
"""The programs that the package contains."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn


def program(name: str) -> str:
    """Returns the path of a program of the package, such as ``sluice-server``."""
    return str(pathlib.Path(__file__).parent / "bin" / name)


def _become(name: str) -> NoReturn:
    path = program(name)
    os.execv(path, [path, *sys.argv[1:]])


def sluice() -> NoReturn:
    """Entry point of the command ``sluice``."""
    _become("sluice")


def sluice_server() -> NoReturn:
    """Entry point of the command ``sluice-server``."""
    _become("sluice-server")
