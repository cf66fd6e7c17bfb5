# SPDX-License-Identifier: Apache-2.0
"""Trains with FSDP2 on two "nodes" of two ranks each. Each check says its results."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import common
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import sluice

STEPS = 4
NODES, RANKS = 2, 2
LOSSLESS = {"uplink": "none", "downlink": "none", "quiet": True}
# Name: how the optimizer is made, backward passes per step, whether gradients are clipped, whether step() gets a closure.
Case = tuple[Callable[[Any], torch.optim.Optimizer], int, bool, bool]
CASES: dict[str, Case] = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1, False, False),
    "accumulation": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 3, False, False),
    "clipping": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1, True, False),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01), 1, False, False),
    "closure": (lambda p: torch.optim.SGD(p, lr=0.1), 1, False, True),
}


class Block(nn.Module):
    """Has odd sizes, a parameter of which one rank holds all, an unused and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 7)
        self.again = nn.Linear(7, 6)
        self.scale = nn.Parameter(torch.ones(1))
        self.unused = nn.Parameter(torch.ones(4))
        self.frozen = nn.Parameter(torch.full((6,), 0.5), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.first(x).tanh()) * self.scale + self.frozen


def new_model(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(Block(), Block())


def shard(model: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    for part in model:
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def loss_of(model: nn.Module, rank: int, step: int, part: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + 10 * step + part)
    return model(torch.randn(5, 6, generator=generator)).square().mean()


def train(model: nn.Module, case: Case, ranks: range, attach: Callable[[torch.optim.Optimizer], Any]) -> None:
    """Trains with the mean loss of `ranks`: this process's own, or all."""
    make, parts, clipped, closure = case
    optimizer: Any = make(model.parameters())
    attach(optimizer)
    for step in range(STEPS):

        def evaluate(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.zeros(())
            for part in range(parts):
                loss = torch.stack([loss_of(model, rank, step, part) for rank in ranks]).mean()
                loss.backward()
            return loss

        if closure:
            assert float(optimizer.step(evaluate).detach()) > 0
            continue
        evaluate()
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.grad is None and len(ranks) > 1:
                parameter.grad = torch.zeros_like(parameter)  # AdamW lets the weights of unused parameters decay.
        if clipped:
            getattr(optimizer, "synchronize", lambda: None)()
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            if step == 1:
                continue  # Skips the step after the exchange. The next one must exchange again.
        optimizer.step()


def equal() -> dict[str, Any]:
    """Two nodes against one process with the batches of all ranks."""
    mesh = init_device_mesh("cpu", (NODES, RANKS), mesh_dim_names=("node", "rank"))
    node = common.RANK // RANKS
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        expected = new_model(0)
        train(expected, case, range(common.SIZE), lambda _: None)
        model = shard(new_model(node), mesh["rank"])  # Node 1 begins elsewhere, and takes the values of node 0.
        sessions: list[sluice.Session] = []
        train(
            model, case, range(common.RANK, common.RANK + 1), lambda o, m=model, s=sessions: s.append(sluice.fsdp_attach(m, o, **LOSSLESS))
        )
        wanted = dict(expected.named_parameters())
        differences = {key: float((p.detach().full_tensor() - wanted[key].detach()).abs().max()) for key, p in model.named_parameters()}
        sessions[0].close()
        found[name] = {"worst": max(differences.values()), "steps": sessions[0].step, "names": [row[0] for row in sessions[0]._rows]}
    return found


def compressed() -> dict[str, Any]:
    """A codec that delays gradients; all nodes must have the same parameters."""
    mesh = init_device_mesh("cpu", (NODES, RANKS), mesh_dim_names=("node", "rank"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 2000), nn.Tanh(), nn.Linear(2000, 6))
    fully_shard(model, mesh=mesh["rank"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0005, momentum=0.9)
    session = sluice.fsdp_attach(model, optimizer, uplink="topk:5%+int4", downlink="int8")
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 6)) - common.RANK).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step == 20:
            session.compare_parameters(list(model.parameters()))
    found = {
        "sha256": sluice._tensors.sha256(list(model.parameters())).hex(),
        "momentum": optimizer.param_groups[0]["momentum"],
        "ratio": session.figures().ratio_up,
        "place": [session.rank, session.world_size, sluice.rank(), sluice.size()],
        "indices": list(session.sampler(list(range(8)), shuffle=False)),
        "shards": len(common.shard_pids(session)),
        "losses": losses,
    }
    session.close()
    return found


def refused() -> list[str]:
    mesh = init_device_mesh("cpu", (NODES, RANKS), mesh_dim_names=("node", "rank"))

    def plain() -> None:
        model = new_model(0)
        sluice.fsdp_attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def hybrid() -> None:
        model = shard(new_model(0), mesh)
        sluice.fsdp_attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def early() -> None:
        model = new_model(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sluice.fsdp_attach(shard(model, mesh["rank"]), optimizer)

    def small() -> None:
        model = nn.Module()
        model.only = nn.Parameter(torch.ones(1))
        sluice.fsdp_attach(fully_shard(model, mesh=mesh["rank"]), torch.optim.SGD(model.parameters(), lr=0.1))

    def with_options(**options: Any) -> Callable[[], None]:
        def call() -> None:
            model = shard(new_model(0), mesh["rank"])
            sluice.fsdp_attach(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)

        return call

    def scaled() -> None:
        model = shard(new_model(0), mesh["rank"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = sluice.fsdp_attach(model, optimizer, **LOSSLESS)
        scaler = sluice.GradScaler("cpu")
        scaler.scale(loss_of(model, common.RANK, 0, 0)).backward()
        try:
            scaler.step(optimizer)
        finally:
            session.close()

    calls = [plain, hybrid, early, small, with_options(coordinator="127.0.0.1:1"), with_options(coordinator=["127.0.0.1:1"]), with_options(rank=0)]
    return [common.message_of(call) for call in [*calls, scaled]]


def one_mesh() -> dict[str, Any]:
    """A model that is sharded over all ranks: nothing is left for Sluice, and it says so."""
    mesh = init_device_mesh("cpu", (common.SIZE,))
    model = shard(new_model(0), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        session = sluice.fsdp_attach(model, optimizer, **LOSSLESS)
    loss_of(model, common.RANK, 0, 0).backward()
    optimizer.step()
    return {"kind": type(session).__name__, "said": said.getvalue(), "step": session.step}


def main() -> None:
    common.begin()
    for check in (equal, compressed, refused, one_mesh):
        common.say(**{check.__name__: check()})
    common.end()


main()
