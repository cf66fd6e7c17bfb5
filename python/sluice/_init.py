"""sluice.init: from a script's arguments and environment to a session."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import secrets
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _sluice
from ._errors import SluiceError
from ._servers import ShardProcess, TokenFile
from ._session import LocalSession, Session, open_sessions
from ._world import Store, World, find_hosts, find_world, open_store, own_address

if TYPE_CHECKING:
    import torch

_sessions = 0  # Of this process; all ranks make theirs in the same order.
_options: dict[str, Any] = {}  # The arguments of the last `init`. Sessions of further models reuse them.


@dataclasses.dataclass(frozen=True)
class TLS:
    """Files with which the connections to servers that run already are secured (docs/security.md). Each is a path.

    Attributes:
        cert: The certificate of this process; empty: it shows none.
        key: The private key of `cert`.
        ca: The certificates of the authorities that sign the servers' certificates.
    """

    cert: str = ""
    key: str = ""
    ca: str = ""


def _job_text(
    job: str | os.PathLike[str] | Mapping[str, Any] | None, uplink: str, downlink: str, workers: int, shards: int
) -> tuple[str, str]:
    """Returns the text of the job, and what messages call it."""
    if job is not None and not isinstance(job, Mapping):
        path = pathlib.Path(job)
        try:
            return path.read_text(), str(path)
        except OSError as failure:
            raise SluiceError(f"cannot read the job file {path}: {failure.strerror}", code="NOT_FOUND") from None
    keys = {
        "name": "python",
        "workers": workers,
        "shards": shards,
        "compression": {"uplink": uplink, "downlink": downlink},
        **(job or {}),
    }
    return json.dumps(keys), "job"


def _with_local_steps(job: Any, local_steps: int) -> Any:
    """Returns the job with the mode and the keys of local steps. A file stays as it is."""
    if job is not None and not isinstance(job, Mapping):
        return job
    return {"mode": "local_sgd", "local_steps": local_steps, **(job or {})}


def _check_job(job: _sluice.JobSummary, name: str, world: World, local_steps: int | None) -> None:
    """Refuses jobs that a Python script cannot take part in yet, and jobs with other local steps than the script's."""
    if job.workers != world.size:
        raise SluiceError(
            f"{name} has {job.workers} workers, and there are {world.size} ranks: start as many, or leave `workers` out",
            code="INVALID_ARGUMENT",
        )
    unknown = [
        f"mode {job.mode}" if job.mode not in ("sync", "local_sgd") else "",
        "optimizer.location: shards" if job.mode == "sync" and job.shards_update else "",
        "checkpoint" if job.checkpoints else "",
    ]
    for key in filter(None, unknown):
        raise SluiceError(
            f"{name} has `{key}`, which Python sessions cannot do yet: remove it, or train with sluice-worker", code="UNIMPLEMENTED"
        )
    if local_steps is not None and (job.mode != "local_sgd" or job.local_steps != local_steps):
        found = f"`local_steps: {job.local_steps}`" if job.mode == "local_sgd" else f"`mode: {job.mode}`"
        raise SluiceError(
            f"{name} has {found}, and the script has local_steps={local_steps}: give all ranks and the job the same number",
            code="INVALID_ARGUMENT",
        )


@dataclasses.dataclass
class _Place:
    """Where the job's servers are, and what this process does for them."""

    job: str
    job_name: str
    coordinator: str
    shards: list[ShardProcess]
    token: TokenFile | None
    hosts: list[str] = dataclasses.field(default_factory=list)


def _start_shards(world: World, store: Store, text: str, name: str, http: str, hosts: list[str], token: TokenFile) -> _Place:
    """Starts this host's shards, if this is its first rank: shard i runs on the i-th host, and so on around."""
    count = _sluice.read_job(text, name).shards
    names = list(dict.fromkeys(hosts))
    own = names.index(hosts[world.rank])
    shards: list[ShardProcess] = []
    coordinator = ""
    try:
        if hosts.index(hosts[world.rank]) == world.rank:
            host = own_address(hosts)
            for shard in range(own, count, len(names)):
                if shard > 0 and not coordinator:
                    coordinator = store.get("coordinator").decode()
                page = http if shard == 0 else "off"
                shards.append(ShardProcess(text, shard, host, coordinator, page, token))
                if shard == 0:
                    coordinator = shards[0].address
                    store.set("coordinator", coordinator)
        coordinator = coordinator or store.get("coordinator").decode()
    except BaseException:
        for started in shards:
            started.end()
        raise
    return _Place(text, name, coordinator, shards, token, hosts)


def _find_servers(
    world: World,
    scope: str,
    shards: int | Literal["auto"],
    job: Any,
    uplink: str,
    downlink: str,
    http: str,
    local_steps: int | None,
    limit: float,
) -> _Place:
    """Agrees on the job through the store, and starts the servers."""
    store = open_store(world, f"{_sessions}{scope}", ", or start the servers yourself and give coordinator=")
    hosts = find_hosts(world, store, limit)
    if world.rank == 0:
        count = len(set(hosts)) if shards == "auto" else shards
        text, name = _job_text(job, uplink, downlink, world.size, count)
        store.set("job", json.dumps({"text": text, "name": name, "token": secrets.token_hex(32)}))
    agreed = json.loads(store.get("job"))
    token = TokenFile(agreed["token"])
    try:
        _check_job(_sluice.read_job(agreed["text"], agreed["name"]), agreed["name"], world, local_steps)
        return _start_shards(world, store, agreed["text"], agreed["name"], http, hosts, token)
    except BaseException:
        token.close()
        raise


def _take_seat(place: _Place, world: World, join_timeout: float, token_file: str, tls: TLS, quiet: bool) -> Session:
    """Makes the session, or ends the servers."""
    try:
        core = _sluice.Session(
            place.job, place.job_name, place.coordinator, world.rank, join_timeout, token_file, tls.cert, tls.key, tls.ca
        )
    except BaseException:
        for shard in place.shards:
            shard.end()
        raise
    kind = Session if place.coordinator else LocalSession
    return kind(
        core, rank=world.rank, world_size=world.size, shards=place.shards, token=place.token, quiet=quiet, hosts=place.hosts
    )


def init(
    model: torch.nn.Module | None = None,
    *,
    uplink: str = "int8",
    downlink: str = "int8",
    local_steps: int | None = None,
    job: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    shards: int | Literal["auto"] = "auto",
    coordinator: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    http: str | None = "127.0.0.1:0",
    join_timeout: float = 60.0,
    token_file: str = "",
    tls: TLS | None = None,
    quiet: bool = False,
    _scope: str = "",
) -> Session:
    """Makes this process a rank of a job.

    With `model` it waits for all ranks; else the first use of the session with a model does.
    A process that is alone gets a `LocalSession`: the codecs run, and nothing is sent.

    Args:
        model: The model whose trainable parameters are exchanged. All ranks take the values of rank 0.
        uplink, downlink: Codec specs for gradients to the shards and means from them. ``int8`` needs no retuning.
            ``$SLUICE_UPLINK`` and ``$SLUICE_DOWNLINK`` override them.
        local_steps: Steps that each rank takes on its own between two exchanges, for `LocalSGD` and `DiLoCo`: the job's mode
            is then ``local_sgd``. `LocalSGD` also needs ``job={"outer_optimizer": "average"}``.
        job: A job file, or the same keys as a mapping (docs/job-file.md). ``$SLUICE_JOB`` overrides it. A file says
            everything itself; a mapping needs neither ``name`` nor ``workers`` nor ``shards``.
        shards: How many servers to start; ``"auto"``: one on each host. They end with this process, however it ends.
        coordinator: ``HOST:PORT`` of shard 0 of servers that run already. ``$SLUICE_COORDINATOR`` overrides it.
            `job` must be the job file that they have.
        rank, world_size: Both or neither; by default those of ``torch.distributed``, ``$RANK`` and ``$WORLD_SIZE``, or Slurm.
        http: ``HOST:PORT`` of the status page, on rank 0; port 0: any free one. None: no page.
        join_timeout: Seconds to wait for the other ranks.
        token_file: The secret of servers that run already, as a path.
        tls: Files that secure the connections to servers that run already.
        quiet: Print warnings and errors alone.

    Raises:
        SluiceError: The message says who, where, which value and what to do. `code` is the kind of error.
    """
    global _sessions, _options
    if not _scope:  # Else some ranks form a job, and others form further jobs (`fsdp_attach`).
        _options = {name: value for name, value in locals().items() if name not in ("model", "_scope")}
    _sessions += 1
    world = find_world(rank, world_size)
    uplink = os.environ.get("SLUICE_UPLINK", uplink)
    downlink = os.environ.get("SLUICE_DOWNLINK", downlink)
    job = os.environ.get("SLUICE_JOB") or job
    if local_steps is not None:
        job = _with_local_steps(job, local_steps)
    coordinator = os.environ.get("SLUICE_COORDINATOR") or coordinator
    if coordinator or world.size == 1:
        text, name = _job_text(job, uplink, downlink, world.size, 1 if shards == "auto" else shards)
        _check_job(_sluice.read_job(text, name), name, world, local_steps)
        place = _Place(text, name, coordinator or "", [], None)
    else:
        place = _find_servers(world, _scope, shards, job, uplink, downlink, http or "off", local_steps, join_timeout)
        token_file = place.token.path if place.token else ""
    session = _take_seat(place, world, join_timeout, token_file, tls or TLS(), quiet)
    if model is not None:
        try:
            session.join(trainable(model))
        except BaseException as failure:
            session.abandon(str(failure))
            raise
    return session


def next_session() -> Session:
    """Returns the oldest open session without a model, or else a new one with the options of the last `init`."""
    for session in open_sessions():
        if not session.joined:
            return session
    options = dict(_options)
    if open_sessions():
        if options.get("coordinator") or os.environ.get("SLUICE_COORDINATOR"):
            raise SluiceError(
                "servers that run already serve one session, and it has a model: start others for the second model, and give session=",
                code="FAILED_PRECONDITION",
            )
        if options.get("http"):
            options["http"] = options["http"].rpartition(":")[0] + ":0"  # The first session has the port.
    return init(**options)


def trainable(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Returns the trainable parameters of a model under their names, without what wrappers put before them."""
    found: list[tuple[str, torch.Tensor]] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts = [part for part in name.split(".") if part != "_orig_mod"]
            found.append((".".join(parts), parameter))
    if not found:
        raise SluiceError("the model has no trainable parameters: requires_grad is False for all", code="INVALID_ARGUMENT")
    return found


def warn(text: str) -> None:
    print(f"sluice: WARNING {text}", file=sys.stderr, flush=True)
