# SPDX-License-Identifier: Apache-2.0
"""Questions about this process's place in the job, under the names that Horovod uses."""

from __future__ import annotations

import os

from ._errors import SluiceError
from ._session import open_sessions
from ._world import World, find_world


def own_world() -> World:
    """Returns the rank and the number of ranks of the open sessions, or else of the environment."""
    for session in open_sessions():
        return session._place
    return find_world(None, None)


def is_initialized() -> bool:
    """Returns whether this process has an open session."""
    return bool(open_sessions())


def rank() -> int:
    """Returns the rank of this process: an open session's, or else that of ``torch.distributed`` or the environment."""
    return own_world().rank


def size() -> int:
    """Returns the number of ranks: an open session's, or else that of ``torch.distributed`` or the environment."""
    return own_world().size


def local_rank() -> int:
    """Returns the number of this process among those of its host: ``$LOCAL_RANK``, Slurm's, or a count of the session's hosts.

    Raises:
        SluiceError: Nothing says which ranks share a host.
    """
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    for session in open_sessions():
        if session._hosts and session._place.size == session.world_size:
            return session._hosts[: session.rank].count(session._hosts[session.rank])
    if size() == 1:
        return 0
    raise SluiceError("nothing says which ranks share a host: set the environment variable LOCAL_RANK", code="FAILED_PRECONDITION")


def shutdown() -> None:
    """Closes all sessions of this process in the order in which they were made. Waits as `Session.close` does."""
    for session in open_sessions():
        session.close()
