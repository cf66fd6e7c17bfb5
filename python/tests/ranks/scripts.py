# SPDX-License-Identifier: Apache-2.0
"""Runs scripts one after another in one process per rank, as torchrun would run each, and says what their sessions exchanged."""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
from typing import Any

import common
import torch.distributed as dist

import sluice

_figures: list[sluice.Figures] = []  # The figures of the sessions that the script has closed.


def note_figures() -> None:
    """Lets `Session.close` note the figures first: some scripts close the session, and others leave it open."""
    close: Any = sluice.Session.close

    def noted(session: sluice.Session) -> None:
        if session._core is not None:
            _figures.append(session.figures())
        close(session)

    sluice.Session.close = noted  # type: ignore[method-assign]


def main() -> None:
    os.environ |= {"LOCAL_RANK": str(common.RANK), "LOCAL_WORLD_SIZE": str(common.SIZE), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "test"}
    note_figures()
    for script in sys.argv[1:]:
        common.begin_without_group(pathlib.Path(script).stem)
        runpy.run_path(script, run_name="__main__")
        sluice.shutdown()
        common.say(**{pathlib.Path(script).stem: [{"steps": found.steps, "ratio": found.ratio_up} for found in _figures]})
        _figures.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
    sys.stdout.flush()


main()
