# SPDX-License-Identifier: Apache-2.0
"""Calls that wait, and that a signal can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.05  # So often a waiting call lets a signal act.
_T = TypeVar("_T")


def patiently(call: Callable[[], _T], between: Callable[[], None], interrupt: Callable[[BaseException], None]) -> _T:
    """Returns the result of `call`, which runs on a thread of its own, so that a signal can act here meanwhile.

    Args:
        call: Waits, without the GIL.
        between: Called several times a second.
        interrupt: Makes `call` end. It gets the exception of a signal handler, which is raised once `call` has ended.
    """
    values: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            values.append(call())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run, name="sluice-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        run()  # Python 3.12 starts no threads once the script has ended.
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            between()
    except BaseException as error:
        interrupt(error)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return values[0]
