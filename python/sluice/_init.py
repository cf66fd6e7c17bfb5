# SPDX-License-Identifier: Apache-2.0
"""sluice.init: from a script's arguments and environment to a session."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _sluice
from ._buffers import averaged_buffers
from ._errors import SluiceError
from ._network import own_address, read_ports
from ._servers import ShardProcess, TokenFile, start_shard
from ._session import LocalSession, Session, open_sessions
from ._world import Store, World, find_hosts, find_world, open_store

if TYPE_CHECKING:
    import torch

_CODEC = "int8"
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


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """The arguments of `init` that describe the job and the servers to start."""

    job: Any
    uplink: str | None
    downlink: str | None
    local_steps: int | None
    shards: int | Literal["auto"]
    http: str
    ports: str | None
    interface: str | None
    join_timeout: float
    threads: int

    def overridden(self) -> _Wanted:
        """Returns the arguments with those of the environment in place of the script's."""
        found: dict[str, Any] = {}
        for name in ("job", "uplink", "downlink", "ports", "interface"):
            if text := os.environ.get(f"SLUICE_{name.upper()}"):
                found[name] = text
        return dataclasses.replace(self, **found)

    def text(self, workers: int, hosts: int) -> tuple[str, str]:
        """Returns the text of the job, and what messages call it."""
        job = self.job
        if job is not None and not isinstance(job, Mapping):
            path = pathlib.Path(job)
            try:
                return path.read_text(), str(path)
            except OSError as failure:
                raise SluiceError(f"cannot read the job file {path}: {failure.strerror}", code="NOT_FOUND") from None
        keys = {
            "name": "python",
            "workers": workers,
            "shards": hosts if self.shards == "auto" else self.shards,
            **({} if self.local_steps is None else {"mode": "local_sgd", "local_steps": self.local_steps}),
            **(job or {}),
        }
        compression = keys.get("compression", {})
        if isinstance(compression, Mapping):
            usual = None if "preset" in keys else _CODEC  # A preset may have codecs.
            stated = {"uplink": self.uplink or usual, "downlink": self.downlink or usual}
            keys["compression"] = {**{key: codec for key, codec in stated.items() if codec}, **compression}
        return json.dumps(keys), "job"

    def check_codecs(self, job: _sluice.JobSummary, name: str) -> None:
        """Refuses codecs that the job does not have: it says everything itself."""
        for key in ("uplink", "downlink"):
            wanted, found = getattr(self, key), getattr(job, key)
            if wanted is None or _sluice.canonical_spec(wanted) == found:
                continue
            variable = f"SLUICE_{key.upper()}"
            given = f"${variable} is" if os.environ.get(variable) else f"the script has {key}"
            name = os.environ.get("SLUICE_JOB_SOURCE", name)  # `sluice run` copies the job file.
            place = f"set `compression.{key}` in {name}" if name else f"start `sluice run` with --set compression.{key}={wanted}"
            raise SluiceError(
                f"{given} {wanted!r}, which has no effect, because {name or 'the job of `sluice run`'} has `{found}`: {place}, or remove it",
                code="INVALID_ARGUMENT",
            )


def _check_job(job: _sluice.JobSummary, name: str, world: World, local_steps: int | None, scope: str = "", alone: bool = False) -> None:
    """Refuses jobs that a Python script cannot take part in yet, and jobs with other local steps than the script's."""
    if job.workers != world.size:
        raise SluiceError(
            f"{name} has {job.workers} workers, and there are {world.size} ranks: start as many, or leave `workers` out",
            code="INVALID_ARGUMENT",
        )
    unknown = [
        f"mode {job.mode}" if job.mode not in ("sync", "local_sgd") else "",
        "optimizer.location: shards" if job.mode == "sync" and job.shards_update else "",
    ]
    for key in filter(None, unknown):
        raise SluiceError(
            f"{name} has `{key}`, which Python sessions cannot do yet: remove it, or train with sluice-worker", code="UNIMPLEMENTED"
        )
    reason = "a process that is alone has none" if alone else "fsdp_attach has none" if scope else f"mode {job.mode} has none in Python"
    if job.checkpoints and (alone or scope or job.mode != "sync"):
        raise SluiceError(
            f"{name} has `checkpoint`, and {reason}: remove it, and save Session.state_dict() with the model", code="UNIMPLEMENTED"
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

    def end(self) -> None:
        """Ends the servers of this process."""
        for shard in self.shards:
            shard.end()
        if self.token is not None:
            self.token.close()


def _start_own_shards(world: World, store: Store, place: _Place, wanted: _Wanted) -> None:
    """Starts this host's shards: shard i runs on the i-th host, and so on around. Adds them to the place."""
    count = _sluice.read_job(place.job, place.job_name).shards
    names = list(dict.fromkeys(place.hosts))
    own = names.index(place.hosts[world.rank])
    host, ports = own_address(place.hosts, wanted.interface), read_ports(wanted.ports)
    assert place.token is not None
    for shard in range(own, count, len(names)):
        if shard > 0:
            place.coordinator = place.coordinator or _await_coordinator(store)
        page = wanted.http if shard == 0 else "off"
        place.shards.append(start_shard(place.job, shard, host, ports, place.coordinator, page, place.token, wanted.threads))
        if shard == 0:
            place.coordinator = place.shards[0].address
            store.set("coordinator", json.dumps({"address": place.coordinator}))


def _await_coordinator(store: Store) -> str:
    """Returns the address of shard 0 once it runs."""
    found: dict[str, str] = json.loads(store.get("coordinator"))
    if "error" in found:
        raise SluiceError(f"rank 0 could not start the servers: {found['error']}", code="UNAVAILABLE")
    return found["address"]


def _find_servers(world: World, scope: str, wanted: _Wanted) -> _Place:
    """Agrees on the job through the store, and starts the servers, if this is its host's first rank."""
    store = open_store(world, f"{_sessions}{scope}", ", or start the servers yourself and give coordinator=")
    hosts = find_hosts(world, store, wanted.join_timeout)
    if world.rank == 0:
        text, name = wanted.text(world.size, len(set(hosts)))
        store.set("job", json.dumps({"text": text, "name": name, "token": secrets.token_hex(32)}))
    agreed = json.loads(store.get("job"))
    place = _Place(agreed["text"], agreed["name"], "", [], TokenFile(agreed["token"]), hosts)
    try:
        job = _sluice.read_job(place.job, place.job_name)
        _check_job(job, place.job_name, world, wanted.local_steps, scope)
        wanted.check_codecs(job, place.job_name)
        if hosts.index(hosts[world.rank]) == world.rank:
            _start_own_shards(world, store, place, wanted)
        place.coordinator = place.coordinator or _await_coordinator(store)
        return place
    except BaseException as failure:
        if world.rank == 0 and not place.coordinator:
            with contextlib.suppress(RuntimeError):  # Without the store the others cannot be told.
                store.set("coordinator", json.dumps({"error": str(failure)}))
        place.end()
        raise


def _find_place(world: World, scope: str, wanted: _Wanted, coordinator: str | None) -> _Place:
    """Returns the servers that run already, or starts some. A rank that is alone needs none."""
    if not coordinator and world.size > 1:
        return _find_servers(world, scope, wanted)
    text, name = wanted.text(world.size, 1)
    found = _sluice.read_job(text, name)
    _check_job(found, name, world, wanted.local_steps, scope, alone=not coordinator)
    wanted.check_codecs(found, name)
    return _Place(text, name, coordinator or "", [], None)


def _take_seat(place: _Place, world: World, wanted: _Wanted, token_file: str, tls: TLS, quiet: bool) -> Session:
    """Makes the session, or ends the servers."""
    token_file = place.token.path if place.token else token_file
    try:
        core = _sluice.Session(
            place.job,
            place.job_name,
            place.coordinator,
            world.rank,
            wanted.join_timeout,
            token_file,
            tls.cert,
            tls.key,
            tls.ca,
            wanted.threads,
        )
    except BaseException:
        place.end()
        raise
    kind = Session if place.coordinator else LocalSession
    return kind(
        core, rank=world.rank, world_size=world.size, shards=place.shards, token=place.token, quiet=quiet, hosts=place.hosts
    )


def init(
    model: torch.nn.Module | None = None,
    *,
    uplink: str | None = None,
    downlink: str | None = None,
    local_steps: int | None = None,
    job: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    shards: int | Literal["auto"] = "auto",
    coordinator: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    http: str | None = "127.0.0.1:0",
    ports: str | None = None,
    interface: str | None = None,
    join_timeout: float = 60.0,
    threads: int = 1,
    token_file: str = "",
    tls: TLS | None = None,
    quiet: bool = False,
    _scope: str = "",
) -> Session:
    """Makes this process a rank of a job.

    With `model` it waits for all ranks; else the first use of the session with a model does.
    A process that is alone gets a `LocalSession`: the codecs run, and nothing is sent.

    Args:
        model: The model whose trainable parameters are exchanged, and whose buffers are averaged. All ranks take rank 0's values.
        uplink, downlink: Codec specs for gradients to the shards and means from them. By default those of `job`, or else
            ``int8``, which needs no retuning. ``$SLUICE_UPLINK`` and ``$SLUICE_DOWNLINK`` override them.
        local_steps: Steps that each rank takes on its own between two exchanges, for `LocalSGD` and `DiLoCo`: the job's mode
            is then ``local_sgd``. `LocalSGD` also needs ``job={"outer_optimizer": "average"}``.
        job: A job file, or the same keys as a mapping (docs/job-file.md). ``$SLUICE_JOB`` overrides it. A file says
            everything itself; a mapping needs neither ``name`` nor ``workers`` nor ``shards``.
        shards: How many servers to start; ``"auto"``: one on each host. They end with this process, however it ends.
        coordinator: ``HOST:PORT`` of shard 0 of servers that run already. ``$SLUICE_COORDINATOR`` overrides it.
            `job` must be the job file that they have.
        rank, world_size: Both or neither; by default those of ``torch.distributed``, ``$RANK`` and ``$WORLD_SIZE``, or Slurm.
        http: ``HOST:PORT`` of the status page, on rank 0; port 0: any free one. None: no page.
        ports: Ports for the servers that are started, such as ``"7070-7079"``; by default any free ones. ``$SLUICE_PORTS`` overrides it.
        interface: The interface (``"eth1"``) or the address of this host at which the others reach its servers; by default that
            of the route to ``$MASTER_ADDR``. ``$SLUICE_INTERFACE`` overrides it.
        join_timeout: Seconds to wait for the other ranks.
        threads: Threads of this rank that encode gradients and apply means, and threads of each server that it starts: 1 to 256.
            Results do not depend on it.
        token_file: The secret of servers that run already, as a path. ``$SLUICE_TOKEN_FILE`` overrides it.
        tls: Files that secure the connections to servers that run already.
        quiet: Print warnings and errors alone.

    Raises:
        SluiceError: The message says who, where, which value and what to do. `code` is the kind of error.
    """
    if not 1 <= threads <= 256:
        raise SluiceError(f"threads is {threads}: give 1 to 256", code="INVALID_ARGUMENT")
    global _sessions, _options
    if not _scope:  # Else some ranks form a job, and others form further jobs (`fsdp_attach`).
        _options = {name: value for name, value in locals().items() if name not in ("model", "_scope")}
    _sessions += 1
    world = find_world(rank, world_size)
    wanted = _Wanted(job, uplink, downlink, local_steps, shards, http or "off", ports, interface, join_timeout, threads).overridden()
    place = _find_place(world, _scope, wanted, os.environ.get("SLUICE_COORDINATOR") or coordinator)
    session = _take_seat(place, world, wanted, os.environ.get("SLUICE_TOKEN_FILE") or token_file, tls or TLS(), quiet)
    if model is not None:
        try:
            session.join(trainable(model), averaged_buffers(model))
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
