# SPDX-License-Identifier: Apache-2.0
"""sluice.launch: runs a function on several ranks, each a process of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar

from ._errors import SluiceError
from ._init import init
from ._session import Session

_T = TypeVar("_T")
_PR_SET_PDEATHSIG = 1


class _RankTraceback(Exception):
    """The cause of a rank's exception: the traceback, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _is_interactive() -> bool:
    """Whether processes that this one spawns cannot import ``__main__``, as in a notebook."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is None and not hasattr(main, "__file__")


def _pickled(fn: Callable[[Session], Any], options: dict[str, Any]) -> bytes:
    pickler: Any = pickle
    if _is_interactive() and getattr(fn, "__module__", "") == "__main__":
        try:
            pickler = importlib.import_module("cloudpickle")
        except ImportError:
            raise SluiceError(
                f"new processes cannot import {getattr(fn, '__name__', 'the function')} from a notebook or an interactive session: "
                "install cloudpickle, or move the function to a file and import it",
                code="FAILED_PRECONDITION",
            ) from None
    try:
        payload: bytes = pickler.dumps((fn, options))
    except (pickle.PicklingError, AttributeError, TypeError) as failure:
        raise SluiceError(
            f"the function and the options of launch cannot be sent to new processes ({failure}): define the function at the top "
            "level of a module",
            code="INVALID_ARGUMENT",
        ) from None
    return payload


def _send_failure(results: Connection, failure: BaseException) -> None:
    text = "".join(traceback.format_exception(failure))
    try:
        sent = pickle.dumps(failure)
        pickle.loads(sent)
    except Exception:  # noqa: BLE001
        sent = pickle.dumps(RuntimeError(f"{type(failure).__name__}: {failure}"))
    with contextlib.suppress(OSError):
        results.send((False, sent, text))


def _exit() -> NoReturn:
    """Ends the process without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(1)


def _run_rank(payload: bytes, variables: dict[str, str], threads: int, parent: int, results: Connection) -> None:
    """The new process."""
    os.setsid()  # So that the parent can end it with all processes that it starts.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.environ.update(variables)
    try:
        import torch

        torch.set_num_threads(threads)
        fn, options = pickle.loads(payload)
        session = init(**options)
        try:
            value = fn(session)
        except BaseException as failure:
            _send_failure(results, failure)  # Before the others hear of it and fail too.
            session.abandon(f"{type(failure).__name__}: {failure}"[:300])
            _exit()
        session.close()
        results.send((True, pickle.dumps(value if session.rank == 0 else None), ""))
    except BaseException as failure:  # noqa: BLE001
        _send_failure(results, failure)
        _exit()


class _Rank:
    """One rank, as the parent sees it."""

    def __init__(self, rank: int, payload: bytes, variables: dict[str, str], threads: int) -> None:
        self.rank = rank
        context = multiprocessing.get_context("spawn")
        self.results, theirs = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_run_rank,
            args=(payload, {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}, threads, os.getpid(), theirs),
            name=f"sluice-rank-{rank}",
        )
        try:
            self.process.start()
        finally:
            theirs.close()

    def take(self) -> Any:
        """Returns the value of the rank, which has sent something or ended. Raises its exception."""
        try:
            well, sent, text = self.results.recv()
        except (EOFError, OSError):
            self.process.join()
            raise SluiceError(f"rank {self.rank} {_end_of(self.process.exitcode)}", code="ABORTED", rank=self.rank) from None
        value = pickle.loads(sent)
        if not well:
            raise value from _RankTraceback(f"rank {self.rank}:\n{text}")
        return value

    def kill(self) -> None:
        """Ends the process and all that it has started."""
        if self.process.pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.results.close()


def _end_of(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code} and without a result"


def launch(fn: Callable[[Session], _T], workers: int = 2, **options: Any) -> _T:
    """Runs a function on several ranks, each in a new process of this machine. For notebooks and tests.

        def train(session):
            ...

        losses = sluice.launch(train, workers=2, uplink="int4")

    It starts new processes (``spawn``), which import the function. A script therefore needs ``if __name__ == "__main__"``. In
    a notebook, functions of its cells need the package ``cloudpickle``. The ranks have the environment variables of
    ``torchrun``, so ``torch.distributed.init_process_group("gloo")`` works in the function.

    Args:
        fn: A function of the rank's `Session`.
        workers: The number of ranks.
        **options: Those of `sluice.init`.

    Returns:
        What the function returned on rank 0.

    Raises:
        Exception: The exception of the rank that failed first, with that rank's traceback as its cause. No process remains.
        SluiceError: `workers` is below 1, the function cannot be sent to new processes, or a rank was killed.
    """
    if workers < 1:
        raise SluiceError(f"launch: workers is {workers}, and must be at least 1", code="INVALID_ARGUMENT")
    payload = _pickled(fn, options)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        # The ranks use this process's store, as they use that of torchrun.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    ranks: list[_Rank] = []
    values: dict[int, Any] = {}
    try:
        for rank in range(workers):
            ranks.append(_Rank(rank, payload, variables, threads))
        while len(values) < workers:
            waiting = {one.results: one for one in ranks if one.rank not in values}
            for ready in multiprocessing.connection.wait(list(waiting)):
                one = next(one for results, one in waiting.items() if results is ready)
                values[one.rank] = one.take()
        for one in ranks:
            one.process.join()
    finally:
        for one in ranks:
            one.kill()
    result: _T = values[0]
    return result
