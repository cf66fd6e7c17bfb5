# SPDX-License-Identifier: Apache-2.0
"""FSDP2 shards a model over the ranks of a node, and Sluice exchanges each shard's gradients between the nodes."""

from __future__ import annotations

import functools
import json
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ._ddp import take_means
from ._errors import SluiceError
from ._init import init, trainable, warn
from ._session import Session
from ._tune import tune
from ._world import World, find_world, open_store

_calls = 0  # Of `fsdp_attach` in this process; all ranks make theirs in the same order.


class _Exchange:
    """The gradients of this rank's shards. `parameters` are in the order of the session's table."""

    def __init__(self, session: Session, parameters: list[Any]) -> None:
        self.session = session
        self._parameters = parameters
        self._complete = False  # The gradients are means: no backward pass has come since the last exchange.
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(_forget(weakref.ref(self)))

    def synchronize(self) -> None:
        """Replaces the gradients by their means over all nodes, to clip them, for example. The next step then does not."""
        if not self._complete:
            with torch.no_grad():
                self._exchange()

    def _exchange(self) -> None:
        gradients = [p.grad.to_local() if p.grad is not None else torch.zeros_like(p.to_local()) for p in self._parameters]
        for i in reversed(range(len(gradients))):
            self.session.submit(i, gradients[i])
        take_means(self.session, self._parameters)
        self._complete = True
        self.session.end_step()

    def before_step(self, _: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """PyTorch calls it before each step of the optimizer, which is the first argument."""
        if len(arguments) > 1 and arguments[1] is not None:
            return (arguments[0], self._then_exchange(arguments[1]), *arguments[2:]), options
        if options.get("closure") is not None:
            return arguments, options | {"closure": self._then_exchange(options["closure"])}
        self.synchronize()
        self._complete = False
        return None

    def _then_exchange(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(closure)
        def call() -> Any:
            loss = closure()
            self.synchronize()
            self._complete = False
            return loss

        return call


def _forget(exchange: weakref.ref[_Exchange]) -> Callable[[Any], None]:
    # The parameter outlives the exchange, and must not keep it.
    def after(_: Any) -> None:
        own = exchange()
        if own is not None:
            own._complete = False

    return after


def _error(code: str, text: str) -> SluiceError:
    return SluiceError(f"fsdp_attach: {text}", code=code)


def _check(named: list[tuple[str, Any]], optimizer: torch.optim.Optimizer) -> Any:
    """Returns the mesh over whose ranks all parameters are sharded.

    Raises:
        SluiceError: A parameter is not sharded so, or the optimizer has other parameters.
    """
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from torch.distributed.tensor import DTensor, Shard
    except ImportError:
        raise _error("UNIMPLEMENTED", f"PyTorch {torch.__version__} has no FSDP2: use PyTorch 2.6 or newer") from None
    meshes = []
    for name, parameter in named:
        if not isinstance(parameter, DTensor):
            raise _error("INVALID_ARGUMENT", f"{name} is not sharded, and nothing averages its gradient inside the node: call fully_shard(model) first")
        mesh = parameter.device_mesh
        if mesh.ndim != 1 or not isinstance(parameter.placements[0], Shard):
            raise _error(
                "UNIMPLEMENTED",
                f"{name} has the placements {parameter.placements} on a mesh of {mesh.ndim} dimensions: give fully_shard a mesh with one "
                "dimension, the ranks of this node (HSDP and tensor parallelism are not supported)",
            )
        meshes.append(mesh)
        if mesh != meshes[0]:
            raise _error("UNIMPLEMENTED", f"{name} is sharded over other ranks than {named[0][0]}: use one mesh for the whole model")
    names = {id(parameter): name for name, parameter in named}
    own = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    for key, name in names.items():
        if key not in own:
            raise _error("INVALID_ARGUMENT", f"the optimizer does not train {name}: create it with model.parameters() after fully_shard")
    for key, parameter in own.items():
        if key not in names:
            raise _error("INVALID_ARGUMENT", f"the optimizer trains a parameter of shape {tuple(parameter.shape)} that the model does not have")
    return meshes[0]


def _find_replicas(mesh: Any, world: World, held: int) -> list[tuple[int, ...]]:
    """Returns the ranks of each node's mesh. `held` is the number of this rank's tensors. Waits until all ranks have said theirs."""
    store = open_store(world, f"fsdp/{_calls}")
    store.set(f"rank/{world.rank}", json.dumps([held, *mesh.mesh.flatten().tolist()]))
    said = [json.loads(store.get(f"rank/{rank}")) for rank in range(world.size)]
    for rank, (count, *_) in enumerate(said):
        if count == 0:
            raise _error("INVALID_ARGUMENT", f"the parameters are too small for {mesh.size()} ranks: rank {rank} holds no part of any")
    meshes = sorted({tuple(ranks) for _, *ranks in said})
    if sorted(rank for ranks in meshes for rank in ranks) != list(range(world.size)) or len({len(ranks) for ranks in meshes}) > 1:
        found = ", ".join(str(list(ranks)) for ranks in meshes)
        raise _error("INVALID_ARGUMENT", f"the meshes must have the same size and contain each of the {world.size} ranks once, and they are {found}")
    return meshes


def _session_of(part: int, parts: int, world: World, options: dict[str, Any]) -> Session:
    """Joins this rank and those of the other nodes that hold the same shard. `world` has their number."""
    for name in ("rank", "world_size"):
        if name in options:
            raise _error("INVALID_ARGUMENT", f"{name} follows from the mesh of the parameters: leave it out")
    if world.size == 1 and part == 0:
        warn(
            f"FSDP shards the model over all {parts} ranks, so no gradients go through Sluice: for more than one node, give "
            "fully_shard a mesh of the ranks of each node"
        )
    if parts > 1:
        coordinator = options.get("coordinator")
        if isinstance(coordinator, str) or os.environ.get("SLUICE_COORDINATOR"):
            raise _error("INVALID_ARGUMENT", f"a node has {parts} ranks, and each needs servers of its own: give a list of {parts} coordinators")
        if coordinator is not None:
            if len(coordinator) != parts:
                raise _error("INVALID_ARGUMENT", f"{len(coordinator)} coordinators were given, and a node has {parts} ranks: give one for each")
            options["coordinator"] = coordinator[part]
        if part > 0 and options.get("http"):
            options["http"] = options["http"].rpartition(":")[0] + ":0"  # Part 0 has the port.
    return init(rank=world.rank, world_size=world.size, _scope=f"/shard{part}", **options)


def fsdp_attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    session: Session | None = None,
    **options: Any,
) -> Session:
    """Lets a model that FSDP2 shards inside each node exchange its gradients between the nodes. Waits for all ranks.

        mesh = init_device_mesh("cuda", (nodes, gpus), mesh_dim_names=("node", "gpu"))
        fully_shard(model, mesh=mesh["gpu"])
        optimizer = torch.optim.AdamW(model.parameters())
        session = sluice.fsdp_attach(model, optimizer)

    The ranks that hold the same shard in different nodes form a job with servers of their own, so no rank sends a gradient
    that another rank of its node has. Before each step of the optimizer, each rank exchanges the gradients of its shards, in
    the shape of ``p.to_local()``; a parameter without a gradient counts as zeros. At the start, all nodes take the values of
    the first node. Buffers stay on their ranks. The momentum is lowered as `tune` does. HSDP, tensor parallelism, loss scaling
    and a second optimizer are not supported.

    The optimizer gets a method ``synchronize()``, which exchanges at once. Call it before you clip or read gradients.
    `Session.rank` is the number of the node, and `sluice.rank` that of the process. `Session.sampler` splits data over all
    processes.

    Zhao et al. (2023), "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv:2304.11277.

    Args:
        model: A module after ``fully_shard``, with a mesh of one dimension that contains the ranks of one node.
        optimizer: The optimizer of all trainable parameters of the model.
        session: A session without a model, whose ranks are the nodes. By default a new one.
        **options: Those of `sluice.init` without `rank` and `world_size`, for a new session. `coordinator` is a list here: the
            servers of each rank of a node.

    Returns:
        The session of this rank's shards.

    Raises:
        SluiceError: A parameter is not sharded over the ranks of one node, the optimizer has other parameters, this rank
            holds no part of any parameter, PyTorch has no FSDP2, or as `sluice.init` and `Session.join`.
    """
    global _calls
    _calls += 1
    try:
        named: list[tuple[str, Any]] = list(trainable(model))
        mesh = _check(named, optimizer)
        world = find_world(None, None)
        part = mesh.get_local_rank()
        held = [(name, parameter) for name, parameter in named if parameter.to_local().numel() > 0]
        if session is None:
            meshes = _find_replicas(mesh, world, len(held))
            node = World(next(i for i, ranks in enumerate(meshes) if world.rank in ranks), len(meshes))
            session = _session_of(part, mesh.size(), node, options)
        else:
            world = World(session.rank * mesh.size() + part, session.world_size * mesh.size())
        session._place = world
        with torch.no_grad():
            session.join([(name, parameter.to_local()) for name, parameter in held])
    except BaseException as failure:
        if session is not None:
            session.abandon(str(failure))
        raise
    parameters = [parameter for _, parameter in held]
    session._index = {id(parameter): i for i, parameter in enumerate(parameters)}
    exchange = _Exchange(session, parameters)
    optimizer.register_step_pre_hook(exchange.before_step)
    optimizer.synchronize = exchange.synchronize  # type: ignore[attr-defined]
    optimizer.is_sharded_by_fsdp = True  # type: ignore[attr-defined]  # For `sluice.GradScaler`.
    tune(optimizer, session)
    return session
