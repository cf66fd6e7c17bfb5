# SPDX-License-Identifier: Apache-2.0
"""Trains and broadcasts on ranks without a process group of torch.distributed. Each check says its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import common
import torch
import torch.distributed as dist
from torch import nn

import sluice

STEPS = 5
LOSSLESS = {"uplink": "none", "downlink": "none", "quiet": True}
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64]


class Odd(nn.Module):
    """Has a frozen, a tied, a scalar and an unused parameter, and a layer that only one rank uses in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.again = nn.Linear(8, 6)
        self.left = nn.Linear(8, 3)
        self.right = nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(()))
        self.unused = nn.Parameter(torch.ones(4))
        self.frozen = nn.Parameter(torch.full((8,), 0.5), requires_grad=False)
        self.last = nn.Linear(6, 8)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        x = self.again(self.first(x).tanh() + self.frozen)
        x = self.last(x).tanh()
        return (self.left(x) if branch % 2 == 0 else self.right(x)) * self.scale


def loss_of(model: nn.Module, rank: int, step: int, part: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + 10 * step + part)
    return model(torch.randn(5, 6, generator=generator), rank + step).square().mean()


def new_model(seed: int) -> Odd:
    torch.manual_seed(seed)
    return Odd()


def sha256(tensors: Any) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def train_alone(make: Callable[[Any], torch.optim.Optimizer], parts: int) -> Odd:
    """One process computes the gradients of both ranks and their mean."""
    model = new_model(0)
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step in range(STEPS):
        found = []
        for rank in range(common.SIZE):
            optimizer.zero_grad()
            for part in range(parts):
                loss_of(model, rank, step, part).backward()
            found.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()])
        for parameter, *gradients in zip(model.parameters(), *found, strict=True):
            if parameter.requires_grad:
                parameter.grad = torch.stack(gradients).mean(dim=0)
        optimizer.step()
        scheduler.step()
    return model


def train_together(make: Callable[[Any], torch.optim.Optimizer], parts: int, closure: bool) -> Odd:
    model = new_model(common.RANK)  # Rank 1 begins elsewhere, and takes rank 0's parameters.
    inner = make(model.parameters())
    optimizer = sluice.DistributedOptimizer(inner, model.named_parameters(), backward_passes_per_step=parts)
    assert isinstance(optimizer, type(inner)) and isinstance(optimizer, sluice.DistributedOptimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step in range(STEPS):

        def evaluate(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            losses = [loss_of(model, common.RANK, step, part) for part in range(parts)]
            for loss in losses:
                loss.backward()
            return losses[-1]

        if closure:
            assert optimizer.step(evaluate) is not None
        else:
            evaluate()
            optimizer.step()
        scheduler.step()
    assert optimizer.session.step == STEPS
    optimizer.session.close()
    return model


def equal() -> dict[str, Any]:
    """DistributedOptimizer against one process that averages the same gradients."""
    makers: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], int, bool]] = {
        "sgd": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01), 1, False),
        "adamw": (lambda p: torch.optim.AdamW(p, lr=0.01), 1, False),
        "accumulation": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 3, False),
        "closure": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1, True),
    }
    differ = {}
    for name, (make, parts, closure) in makers.items():
        sluice.init(**LOSSLESS)
        expected, found = train_alone(make, parts), train_together(make, parts, closure)
        differ[name] = [key for key, value in found.state_dict().items() if not torch.equal(value, expected.state_dict()[key])]
    return differ


def equal_ddp() -> dict[str, Any]:
    """Sluice's own DDP against the same process, with layers that only one rank uses in a step."""
    differ = {}
    for name, options in (("copies", {}), ("views", {"gradient_as_bucket_view": True})):
        expected = train_alone(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1)
        sluice.init(**LOSSLESS)
        model = new_model(common.RANK)
        wrapped = sluice.DistributedDataParallel(model, find_unused_parameters=True, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(wrapped, common.RANK, step, 0).backward()
            optimizer.step()
            scheduler.step()
        wrapped.session.close()
        differ[name] = [key for key, value in model.state_dict().items() if not torch.equal(value, expected.state_dict()[key])]
    return differ


def two_models() -> dict[str, Any]:
    """A generator and a discriminator: one `init`, two optimizers, a session each."""
    sluice.init(uplink="topk:5%+int4", downlink="int8", quiet=True)
    torch.manual_seed(common.RANK)
    generator, discriminator = nn.Linear(4, 50), nn.Linear(50, 1)
    optimizers = [
        sluice.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), m.named_parameters())
        for m in (generator, discriminator)
    ]
    for _ in range(4):
        made = generator(torch.randn(8, 4))
        optimizers[1].zero_grad()
        (discriminator(made.detach()).mean() - discriminator(torch.randn(8, 50)).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        discriminator.requires_grad_(False)
        discriminator(made).mean().neg().backward()
        discriminator.requires_grad_(True)
        optimizers[0].step()
    found = {
        "sha256": sha256([*generator.parameters(), *discriminator.parameters()]),
        "steps": [optimizer.session.step for optimizer in optimizers],
        "uplinks": [optimizer.session.figures().uplink for optimizer in optimizers],
        "momenta": [optimizer.param_groups[0]["momentum"] for optimizer in optimizers],
        "local_rank": sluice.local_rank(),
        "html": optimizers[0].session._repr_html_(),
        "indices": list(optimizers[0].session.sampler(list(range(10)), shuffle=False)),
        "was_initialized": sluice.is_initialized(),
        "place": [sluice.rank(), sluice.size()],
    }
    sluice.shutdown()
    return found | {"is_initialized": sluice.is_initialized(), "is_dist": dist.is_initialized()}


def ddp() -> dict[str, Any]:
    """DistributedDataParallel whose ranks share nothing but Sluice, and a loss scaler; one rank overflows in one step."""
    torch.manual_seed(common.RANK)
    model = nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.Linear(20, 3))
    model[1].register_buffer("extra", torch.full((3,), common.RANK, dtype=torch.float64))
    sluice.init(**LOSSLESS)
    wrapped = sluice.DistributedDataParallel(model)
    begin = sha256([*model.parameters(), *model.buffers()])
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    moved, scales, same = scale_steps(wrapped, optimizer, model)
    wrapped.session.close()
    return {"begin": begin, "end": same, "moved": moved, "scales": scales, "is_dist": dist.is_initialized()}


def scale_steps(model: nn.Module, optimizer: torch.optim.Optimizer, inner: nn.Module) -> tuple[list[bool], list[float], str]:
    scaler = sluice.GradScaler("cpu", init_scale=1024.0)
    moved, scales = [], []
    for step in range(4):
        # Rank 1 overflows in step 1, and all ranks overflow in step 2.
        factor = float("inf") if step == 2 or (step == 1 and common.RANK == 1) else 1.0
        optimizer.zero_grad()
        before = inner[0].weight.detach().clone()
        scaler.scale(model(torch.randn(7, 6)).square().mean() * factor).backward()
        if step == 3:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(inner.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        moved.append(not torch.equal(before, inner[0].weight))
        scales.append(scaler.get_scale())
    return moved, scales, sha256(inner.parameters())


def scaler() -> dict[str, Any]:
    """The loss scaler with a DistributedOptimizer."""
    torch.manual_seed(common.RANK)
    model = nn.Sequential(nn.Linear(6, 20), nn.Linear(20, 3))
    sluice.init(**LOSSLESS)
    optimizer = sluice.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    moved, scales, same = scale_steps(model, optimizer, model)
    optimizer.session.close()
    return {"moved": moved, "scales": scales, "end": same}


def pattern(dtype: torch.dtype, rank: int, size: int = 999) -> torch.Tensor:
    """Random bits of a type, also those of numbers that are not finite."""
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.rand(size, generator=generator) < 0.5
    raw = torch.randint(0, 256, (size * torch.empty((), dtype=dtype).element_size(),), dtype=torch.uint8, generator=generator)
    return raw.view(dtype)


def broadcasts() -> dict[str, Any]:
    """Tensors of all types, a large tensor, optimizer state and objects, from rank 1."""
    own = {str(dtype): pattern(dtype, common.RANK) for dtype in DTYPES}
    own["transposed"] = pattern(torch.float16, common.RANK, 15).reshape(3, 5).t()
    own["scalar"] = torch.tensor(float(common.RANK))
    own["empty"] = torch.zeros(0, 3)
    own["large"] = pattern(torch.uint8, common.RANK, 9_000_001)
    sluice.broadcast_parameters(own, root_rank=1)
    expected = {str(dtype): pattern(dtype, 1) for dtype in DTYPES}
    expected |= {"transposed": pattern(torch.float16, 1, 15).reshape(3, 5).t(), "scalar": torch.tensor(1.0)}
    expected |= {"empty": torch.zeros(0, 3), "large": pattern(torch.uint8, 1, 9_000_001)}
    wrong = [name for name in own if sha256([own[name]]) != sha256([expected[name]])]
    return {
        "wrong": wrong,
        "sent_again": chunks_of(lambda: sluice.broadcast_parameters(own)),
        "object": sluice.broadcast_object({"rank": common.RANK, "a": [1, "b"]}, root_rank=1),
        "optimizer": [optimizer_state(dtype) for dtype in (torch.float32, torch.bfloat16)],
        "errors": [
            common.message_of(lambda: sluice.broadcast_parameters({"a": torch.zeros(2), "b.weight": torch.zeros(2 + common.RANK)})),
            common.message_of(lambda: sluice.broadcast_parameters({"a": torch.zeros(2)} if common.RANK else {"a": torch.zeros(2), "b": torch.zeros(1)})),
            common.message_of(lambda: sluice.broadcast_object(lambda: None)),
            common.message_of(lambda: sluice.broadcast_object(1, root_rank=2)),
            common.message_of(lambda: sluice.broadcast_parameters({"a": 1 if common.RANK else torch.zeros(2)})),
        ],
        "keys_left": keys_left(),
    }


def chunks_of(call: Callable[[], None]) -> int:
    """Returns how many chunks this rank sent."""
    streams: list[sluice._broadcast._Stream] = []
    original = sluice._broadcast._Stream.finish

    def finish(stream: sluice._broadcast._Stream) -> None:
        streams.append(stream)
        original(stream)

    sluice._broadcast._Stream.finish = finish  # type: ignore[method-assign]
    call()
    sluice._broadcast._Stream.finish = original  # type: ignore[method-assign]
    return streams[0]._chunks


def optimizer_state(dtype: torch.dtype) -> str:
    """Adam's state, which is float32 for bfloat16 parameters here, as some optimizers keep it."""
    torch.manual_seed(common.RANK)
    model = nn.Linear(5, 4).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + common.RANK))
    if common.RANK == 1:
        model(torch.randn(3, 5, dtype=dtype)).sum().backward()
        optimizer.step()
        for state in optimizer.state.values():
            state["exp_avg_sq"] = pattern(torch.float32, 7, state["exp_avg_sq"].numel()).reshape(state["exp_avg_sq"].shape)
    sluice.broadcast_optimizer_state(optimizer, root_rank=1)
    tensors = [state[key] for state in optimizer.state.values() for key in ("step", "exp_avg", "exp_avg_sq")]
    return f"{sha256(tensors)} {[str(t.dtype) for t in tensors]} {optimizer.param_groups[0]['lr']}"


def keys_left() -> int | None:
    """Returns how many keys of broadcasts are in the store once all ranks are here; None if PyTorch cannot tell."""
    store = sluice._world._own_store[0]
    store.add(f"here/{common.RANK}", 1)
    store.wait([f"here/{rank}" for rank in range(common.SIZE)])
    if not hasattr(store, "list_keys"):
        return None
    return sum("sluice/0/broadcast/" in key for key in store.list_keys())


def main() -> None:
    common.begin_without_group()
    for check in (equal, equal_ddp, two_models, ddp, scaler, broadcasts):
        common.say(**{check.__name__: check()})


if __name__ == "__main__":
    main()
