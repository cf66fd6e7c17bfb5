# SPDX-License-Identifier: Apache-2.0
"""Trains with local steps on ranks without a process group. Each check says its results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import common
import torch
from torch import nn
from without_group import sha256

import sluice

EVERY = 3
STEPS = 8  # The last round is incomplete.
AVERAGE = {"outer_optimizer": "average"}
LOSSLESS = {"uplink": "none", "downlink": "none", "quiet": True}


def new_model(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))


def take_step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(100 * rank + step)
    optimizer.zero_grad()
    model(torch.randn(5, 6, generator=generator)).square().mean().backward()
    optimizer.step()


def inner(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.9)


class Outer:
    """The arithmetic of a shard that publishes the difference between its parameters and those that the ranks have."""

    def __init__(self, model: nn.Module, lr: float, momentum: float) -> None:
        self.own = [p.detach().clone() for p in model.parameters()]
        self.published = [p.clone() for p in self.own]
        self._slots = [torch.zeros_like(p) for p in self.own]
        self._lr, self._momentum = lr, momentum

    def exchange(self, models: list[nn.Module]) -> None:
        for i, (own, published, slot) in enumerate(zip(self.own, self.published, self._slots, strict=True)):
            changes = [published - list(model.parameters())[i].detach() for model in models]
            mean = torch.stack(changes).mean(dim=0)
            slot.mul_(self._momentum).add_(mean)
            own.sub_((slot * self._momentum + mean) * self._lr if self._momentum else mean)
            published.add_(own - published)
        for model in models:
            for parameter, published in zip(model.parameters(), self.published, strict=True):
                parameter.data.copy_(published)


class Plain:
    """The same by PyTorch: an average of parameters, or SGD with Nesterov momentum whose gradient is the mean change."""

    def __init__(self, model: nn.Module, lr: float, momentum: float) -> None:
        self._outer = copy.deepcopy(model)
        self._optimizer = torch.optim.SGD(self._outer.parameters(), lr=lr, momentum=momentum, nesterov=True) if momentum else None

    def exchange(self, models: list[nn.Module]) -> None:
        for outer, *parameters in zip(self._outer.parameters(), *(model.parameters() for model in models), strict=True):
            mean = torch.stack([p.detach() for p in parameters]).mean(dim=0)
            if self._optimizer is None:
                outer.data.copy_(mean)
            else:
                outer.grad = outer.detach() - mean
        if self._optimizer is not None:
            self._optimizer.step()
        for model in models:
            model.load_state_dict(self._outer.state_dict())


def train_alone(kind: type[Outer] | type[Plain], lr: float, momentum: float) -> list[torch.Tensor]:
    """One process takes the steps of both ranks."""
    models = [new_model(0) for _ in range(common.SIZE)]
    inners = [inner(model) for model in models]
    outer = kind(models[0], lr, momentum)
    for step in range(1, STEPS + 1):
        for rank, (model, (optimizer, scheduler)) in enumerate(zip(models, inners, strict=True)):
            take_step(model, optimizer, rank, step)
            scheduler.step()
        if step % EVERY == 0 or step == STEPS:
            outer.exchange(list(models))
    return [p.detach() for p in models[0].parameters()]


Block = Callable[[sluice.Session, nn.Module, torch.optim.Optimizer], Any]


def local_sgd(session: sluice.Session, model: nn.Module, optimizer: torch.optim.Optimizer) -> sluice.LocalSGD:
    return sluice.LocalSGD(session, model, optimizer, sync_every=EVERY)


def diloco(session: sluice.Session, model: nn.Module, optimizer: torch.optim.Optimizer) -> sluice.DiLoCo:
    return sluice.DiLoCo(session, model, optimizer, sync_every=EVERY)


def train_together(block: Block, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    session = sluice.init(local_steps=EVERY, **options)
    model = new_model(common.RANK)  # Rank 1 begins elsewhere, and takes rank 0's parameters.
    optimizer, scheduler = inner(model)
    states = []
    with block(session, model, optimizer) as rounds:
        for step in range(1, STEPS + 1):
            take_step(model, optimizer, common.RANK, step)
            scheduler.step()
            if rounds.local_step == 0:
                states.append(sha256(model.parameters()))
    states.append(sha256(model.parameters()))
    found = {"states": states, "local_step": rounds.local_step, "exchanges": session.step, "ratio": session.figures().ratio_up}
    before = sha256(model.parameters())
    take_step(model, optimizer, common.RANK, 0)  # After the block, a step is like any other.
    found["left"] = (session.step == found["exchanges"], before != sha256(model.parameters()))
    for parameter, published in zip(model.parameters(), session._published, strict=True):
        parameter.data.copy_(published)
    session.close()
    return model, found


def equal() -> dict[str, Any]:
    """Both blocks against one process, bit for bit, and against PyTorch's own arithmetic."""
    found = {}
    for name, block, options, lr, momentum in (
        ("local_sgd", local_sgd, {"job": AVERAGE}, 1.0, 0.0),
        ("diloco", diloco, {}, 0.7, 0.9),
    ):
        model, figures = train_together(block, **LOSSLESS, **options)
        parameters = [p.detach() for p in model.parameters()]
        same = [torch.equal(a, b) for a, b in zip(parameters, train_alone(Outer, lr, momentum), strict=True)]
        apart = [float((a - b).abs().max()) for a, b in zip(parameters, train_alone(Plain, lr, momentum), strict=True)]
        found[name] = figures | {"same": same, "apart": max(apart)}
    return found


def lossy() -> dict[str, Any]:
    """With lossy codecs, all ranks still hold the same bits after each exchange."""
    compression = {"compression": {"uplink": "topk:10%+int4", "downlink": "topk:30%+int4", "min_elements": 8}}
    return {
        "sparse": train_together(local_sgd, quiet=True, job=AVERAGE | compression)[1],
        "int8": train_together(diloco, quiet=True, job={"compression": {"uplink": "int8", "downlink": "int8", "min_elements": 8}})[1],
    }


def uneven() -> dict[str, Any]:
    """Rank 1 has no data for the second round: the mean is rank 0's change."""
    session = sluice.init(local_steps=EVERY, job=AVERAGE, **LOSSLESS)
    model = new_model(0)
    optimizer, _ = inner(model)
    states = []
    with local_sgd(session, model, optimizer) as rounds:
        for step in range(1, (2 if common.RANK == 0 else 1) * EVERY + 1):
            take_step(model, optimizer, common.RANK, step)
        if common.RANK == 1:
            states.append(sha256(model.parameters()))
            rounds.sync()
        states.append(sha256(model.parameters()))
    found = {"state": states[-1], "moved": states[0] != states[-1], "exchanges": session.step, "counts": session.figures().contributions_min}
    session.close()
    return found


def weighted() -> dict[str, Any]:
    """Rank 1 takes four times as many steps in a round: its parameters have four times the weight, as in one process."""
    session = sluice.init(local_steps=EVERY, job=AVERAGE | {"merge_weights": "tokens"}, **LOSSLESS)
    model, *models = (new_model(0) for _ in range(3))
    steps = [EVERY, 4 * EVERY]
    optimizer, optimizers = inner(model)[0], [inner(each)[0] for each in models]
    with sluice.LocalSGD(session, model, optimizer, sync_every=steps[common.RANK], samples_per_step=8):
        for step in range(2 * steps[common.RANK]):
            take_step(model, optimizer, common.RANK, step)
    for done in range(2):
        for rank, (each, its) in enumerate(zip(models, optimizers, strict=True)):
            for step in range(done * steps[rank], (done + 1) * steps[rank]):
                take_step(each, its, rank, step)
        for a, b in zip(*(each.parameters() for each in models), strict=True):
            mean = 0.2 * a.detach() + 0.8 * b.detach()
            a.data.copy_(mean)
            b.data.copy_(mean)
    apart = [float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), models[0].parameters(), strict=True)]
    found = {"state": sha256(model.parameters()), "exchanges": session.step, "apart": max(apart)}
    session.close()
    return found


def late() -> dict[str, Any]:
    """With a quorum of one, rank 0 goes on while rank 1 stands still in its first round."""
    ahead, caught_up = common.FOLDER / "rank-0-is-ahead", common.FOLDER / "rank-1-has-caught-up"
    session = sluice.init(local_steps=EVERY, job=AVERAGE | {"quorum": 1, "late_decay": 0.5}, **LOSSLESS)
    model = new_model(0)
    optimizer = inner(model)[0]
    seen = []
    with sluice.LocalSGD(session, model, optimizer, sync_every=EVERY) as rounds:
        for step in range(20 * EVERY):
            if common.RANK == 1 and step == EVERY - 1:
                common.wait_for(ahead)
            take_step(model, optimizer, common.RANK, step)
            if rounds.local_step > 0:
                continue
            seen.append(session.step)
            if common.RANK == 0 and session.step == 4:
                ahead.touch()
                common.wait_for(caught_up)
            if common.RANK == 1:
                caught_up.touch()
            if session.step == 6:
                break
    found = {"state": sha256(model.parameters()), "seen": seen}
    session.close()
    return found


STREAMING = {"fragments": 3, "fragment_delay": 1, "merge_alpha": 0.25}
Parts = dict[int, list[tuple[int, int]]]


class StreamedOuter(Outer):
    """`Outer`, for a part of the parameters at a time."""

    def begin(self, models: list[nn.Module], parts: Parts) -> None:
        self._parts = parts
        self._changes = [[published - p.detach() for published, p in zip(self.published, model.parameters(), strict=True)] for model in models]

    def end(self, models: list[nn.Module], alpha: float) -> None:
        for i, parts in self._parts.items():
            mean = torch.stack([changes[i] for changes in self._changes]).mean(dim=0).flatten()
            for offset, count in parts:
                part = slice(offset, offset + count)
                own, published, slot = (values[i].view(-1)[part] for values in (self.own, self.published, self._slots))
                slot.mul_(self._momentum).add_(mean[part])
                own.sub_((slot * self._momentum + mean[part]) * self._lr if self._momentum else mean[part])
                published.add_(own - published)
                for model in models:
                    values = list(model.parameters())[i].data.view(-1)[part]
                    values.mul_(alpha).add_(published, alpha=1 - alpha)


def stream_alone(exchanges: list[Parts], lr: float, momentum: float, every: int) -> list[torch.Tensor]:
    """One process takes the steps of both ranks, and exchanges these parts in this order."""
    models = [new_model(0) for _ in range(common.SIZE)]
    inners = [inner(model) for model in models]
    outer, left = StreamedOuter(models[0], lr, momentum), list(exchanges)
    begins = [int(e * every / 3) for e in range(1, STEPS)]
    for step in range(1, STEPS + 1):
        for rank, (model, (optimizer, scheduler)) in enumerate(zip(models, inners, strict=True)):
            take_step(model, optimizer, rank, step)
            scheduler.step()
        if step in begins:
            outer.begin(list(models), left.pop(0))
        if step - 1 in begins:
            outer.end(list(models), 0.25)
    if STEPS in begins:
        outer.end(list(models), 0.25)
    for _ in range(3):
        outer.begin(list(models), left.pop(0))
        outer.end(list(models), 0.0)
    assert not left
    return [p.detach() for p in models[0].parameters()]


def streamed() -> dict[str, Any]:
    """Fragments that are exchanged while training goes on, against one process, and with lossy codecs and buffers."""
    found: dict[str, Any] = {}
    for name, every, keys, lr, momentum in (
        ("average", 6, AVERAGE, 1.0, 0.0),
        ("nesterov", 7, {"outer_lr": 0.5, "outer_momentum": 0.5}, 0.5, 0.5),
    ):
        session = sluice.init(local_steps=every, job=STREAMING | keys, **LOSSLESS)
        model = new_model(common.RANK)
        optimizer, scheduler = inner(model)
        rounds = sluice.LocalSGD(session, model, optimizer, sync_every=every) if momentum == 0 else sluice.DiLoCo(
            session, model, optimizer, sync_every=every, outer_lr=lr, outer_momentum=momentum
        )
        exchanges: list[Parts] = []
        fragments = rounds._fragments
        assert fragments is not None
        begin = fragments._begin

        def noted(begin: Callable[[], None] = begin, fragments: Any = fragments, exchanges: list[Parts] = exchanges) -> None:
            begin()
            exchanges.append(fragments._parts)

        fragments._begin = noted  # type: ignore[method-assign]
        with rounds:
            for step in range(1, STEPS + 1):
                take_step(model, optimizer, common.RANK, step)
                scheduler.step()
        expected = stream_alone(exchanges, lr, momentum, every)
        apart = [float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), expected, strict=True)]
        closing = [(i, part) for parts in exchanges[-3:] for i, each in parts.items() for part in each]
        found[name] = {
            "state": sha256(model.parameters()),
            "apart": max(apart),
            "exchanges": (session.step, len(exchanges)),
            "elements": sum(count for _, (_, count) in closing) - sum(p.numel() for p in model.parameters()),
        }
        session.close()
    codecs = {"compression": {"uplink": "int4", "downlink": "topk:30%+int4", "min_elements": 8}, "buffer_sync_interval": 2}
    session = sluice.init(local_steps=6, quiet=True, job=STREAMING | AVERAGE | codecs)
    model = nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Linear(40, 3))
    optimizer, _ = inner(model)
    with sluice.LocalSGD(session, model, optimizer, sync_every=6):
        for step in range(1, STEPS + 1):
            take_step(model, optimizer, common.RANK, step)
    found["lossy"] = {"state": sha256(model.parameters())}
    session.close()
    return found


def types() -> dict[str, Any]:
    """Parameters of other types, a frozen one, and changes that are smaller than a bfloat16 can hold."""
    session = sluice.init(local_steps=1, job=AVERAGE, **LOSSLESS)
    model = nn.ParameterDict(
        {
            "narrow": nn.Parameter(torch.full((4, 3), 1.0, dtype=torch.bfloat16)),
            "wide": nn.Parameter(torch.full((5,), 2.0, dtype=torch.float64)),
            "scalar": nn.Parameter(torch.tensor(3.0)),
            "last": nn.Parameter(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)),
            "frozen": nn.Parameter(torch.tensor([4.0]), requires_grad=False),
        }
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    narrow = []
    with sluice.LocalSGD(session, model, optimizer, sync_every=1):
        for _ in range(4):
            for name, parameter in model.items():
                if name != "frozen":
                    # One rank moves by 2^-7, a bfloat16's distance at 1, and the mean is half of that.
                    parameter.grad = torch.full_like(parameter, -(2.0**-7) if common.RANK == 0 else 0.0)
            optimizer.step()
            narrow.append(float(model["narrow"][0, 0]))
    values = {name: sorted({float(x) for x in p.detach().flatten()}) for name, p in model.items()}
    session.close()
    return {"narrow": narrow, "values": values}


def accuracy() -> dict[str, float]:
    """Made data that a small network learns, each rank with half of it."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(10, 4, generator=generator)
    inputs = torch.randn(1200, 10, generator=generator)
    labels = (inputs @ teacher).argmax(dim=1)
    found = {}
    for name, block, options in (("local_sgd", local_sgd, {"job": AVERAGE}), ("diloco", diloco, {})):
        session = sluice.init(local_steps=EVERY, quiet=True, **options)
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        own = range(common.RANK, 1000, common.SIZE)
        with block(session, model, optimizer):
            for step in range(20 * EVERY):
                chosen = [own[(25 * step + i) % len(own)] for i in range(25)]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
                optimizer.step()
        found[name] = float((model(inputs[1000:]).argmax(dim=1) == labels[1000:]).float().mean())
        session.close()
    return found


def failed() -> str:
    """Rank 1's block raises. Returns what each rank hears."""
    session = sluice.init(local_steps=EVERY, **LOSSLESS)
    model = new_model(0)
    optimizer, _ = inner(model)
    try:
        with diloco(session, model, optimizer):
            for step in range(1, STEPS + 1):
                if (common.RANK, step) == (1, 5):
                    raise ValueError("the data has ended")
                take_step(model, optimizer, common.RANK, step)
    except (ValueError, sluice.SluiceError) as error:
        return f"{type(error).__name__} {getattr(error, 'code', '')} {error}; exchanges {session.step}"
    return "no error"


def main() -> None:
    common.begin_without_group()
    for check in (equal, lossy, uneven, weighted, late, streamed, types, accuracy, failed):
        common.say(**{check.__name__: check()})


main()
