# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer and its companions in a process that is alone: with lossless codecs, they must change nothing."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import sluice


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("SLUICE_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    sluice.init(uplink="none", downlink="none", quiet=True)
    yield
    sluice.shutdown()


def new_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def new_optimizer(model: nn.Module, **options: Any) -> sluice.DistributedOptimizer:
    return sluice.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), **options)


def backward(model: nn.Module, seed: int = 0) -> None:
    model(torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))).square().mean().backward()


def test_it_is_the_inner_optimizer_under_another_name() -> None:
    model = new_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = sluice.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "DistributedSGD"
    backward(model)
    optimizer.step()
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    assert inner.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys() == {0, 1, 2, 3}
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert inner.param_groups[0]["lr"] == 0.5
    # A copy takes no part.
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(copied) is torch.optim.SGD
        assert copied.param_groups[0]["lr"] == 0.5
        copied.step()
    assert optimizer.session.step == 1


def test_hooks_and_schedulers_run_once_in_each_step() -> None:
    model = new_model()
    optimizer = new_optimizer(model)
    calls: list[str] = []
    if hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        scheduler.step()
        optimizer.load_state_dict(optimizer.state_dict())
    assert calls == (["after", "after"] if hasattr(optimizer, "register_step_post_hook") else [])
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert optimizer.session.step == 2


def test_steps_of_the_inner_optimizer_exchange_too() -> None:
    model = new_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = sluice.DistributedOptimizer(inner, model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    for own in (inner, optimizer):
        own.zero_grad()
        backward(model)
        own.step()
        scheduler.step()
    assert optimizer.session.step == 2
    assert optimizer.param_groups[0]["lr"] == 0.025
    with pytest.raises(sluice.SluiceError, match="takes an optimizer of PyTorch, and not a DistributedSGD"):
        sluice.DistributedOptimizer(inner)


def test_a_step_that_is_skipped_after_the_exchange_does_not_skip_the_next_exchange() -> None:
    model = new_model()
    optimizer = new_optimizer(model)
    backward(model)
    optimizer.synchronize()
    optimizer.zero_grad()  # Instead of the step.
    optimizer.step()  # This rank's loss reaches no parameter.
    assert optimizer.session.step == 2


def test_a_closed_session_leaves_backward_passes_alone() -> None:
    model = new_model()
    optimizer = new_optimizer(model)
    sluice.shutdown()
    backward(model)
    backward(model)
    with pytest.raises(sluice.SluiceError, match="closed"):
        optimizer.step()


def test_a_second_session_takes_no_port_or_server_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    new_optimizer(new_model())
    taken: list[Any] = []
    monkeypatch.setattr(sluice._init, "_options", {"http": "0.0.0.0:8080"})
    monkeypatch.setattr(sluice._init, "init", lambda **options: taken.append(options))
    sluice._init.next_session()
    assert taken == [{"http": "0.0.0.0:0"}]
    monkeypatch.setattr(sluice._init, "_options", {"coordinator": "127.0.0.1:7070"})
    with pytest.raises(sluice.SluiceError, match="start others for the second model"):
        sluice._init.next_session()


def test_lbfgs_exchanges_after_each_call_of_the_closure() -> None:
    found = []
    for distributed in (False, True):
        model = new_model()
        inner = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, line_search_fn="strong_wolfe")
        optimizer: Any = sluice.DistributedOptimizer(inner, model.named_parameters()) if distributed else inner
        calls = []

        def closure(model: nn.Module = model, optimizer: Any = optimizer, calls: list[int] = calls) -> torch.Tensor:
            calls.append(1)
            optimizer.zero_grad()
            loss: torch.Tensor = model(torch.ones(5, 4)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append(list(model.parameters()))
    assert optimizer.session.step == len(calls) > 2
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_unused_parameters_get_zeros_and_frozen_ones_nothing() -> None:
    model = new_model()
    model.extra = nn.Linear(2, 2)
    model[0].bias.requires_grad_(False)
    optimizer = new_optimizer(model)
    model[1].bias.requires_grad_(False)  # Frozen later, on all ranks.
    model[1](model[0](torch.ones(1, 4))).sum().backward()
    optimizer.step()
    assert model.extra.weight.grad is not None and not model.extra.weight.grad.any()
    assert model[0].bias.grad is None and model[1].bias.grad is None
    assert [row[0] for row in optimizer.session._rows] == ["0.weight", "1.weight", "1.bias", "extra.weight", "extra.bias"]


def test_tied_parameters_have_one_name() -> None:
    model = new_model()
    model[1] = nn.Linear(3, 4)
    model.append(model[0])
    optimizer = sluice.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(remove_duplicate=False)
    ) if torch.__version__ >= "2" else new_optimizer(model)
    backward(model)
    optimizer.step()
    assert [row[0] for row in optimizer.session._rows] == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_parameters_without_names_are_numbered() -> None:
    model = new_model()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 1.0}]
    optimizer = sluice.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))
    assert [row[0] for row in optimizer.session._rows] == ["group0.p0", "group0.p1", "group1.p0", "group1.p1"]


def test_a_session_that_has_the_model_is_taken() -> None:
    model = new_model()
    session = sluice.init(model, uplink="none", downlink="none", quiet=True)
    optimizer = new_optimizer(model, session=session)
    backward(model)
    optimizer.step()
    assert optimizer.session is session and session.step == 1
    with pytest.raises(sluice.SluiceError, match="exchanges another model, without 0.weight"):
        new_optimizer(new_model(), session=session)
    with pytest.raises(sluice.SluiceError, match="closed"):
        backward(model)
        optimizer.step()


def test_clipping_after_synchronize() -> None:
    expected, found = new_model(), new_model()
    plain = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
    optimizer = new_optimizer(found)
    for seed in range(3):
        plain.zero_grad()
        backward(expected, seed)
        nn.utils.clip_grad_norm_(expected.parameters(), 0.01)
        plain.step()
        optimizer.zero_grad()
        backward(found, seed)
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(found.parameters(), 0.01)
        if seed == 1:
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    assert optimizer.session.step == 3
    assert all(torch.equal(a, b) for a, b in zip(expected.parameters(), found.parameters(), strict=True))


def _sparse() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(5, 4, sparse=True)})
    optimizer = new_optimizer(model)
    model["table"](torch.tensor([1])).sum().backward()
    optimizer.step()


def _unfrozen() -> None:
    model = new_model()
    model[0].bias.requires_grad_(False)
    optimizer = new_optimizer(model)
    model[0].bias.requires_grad_(True)
    backward(model)
    optimizer.step()


def _with(act: Callable[[nn.Module, sluice.DistributedOptimizer], Any]) -> Callable[[], None]:
    def run() -> None:
        model = new_model()
        optimizer = new_optimizer(model)
        backward(model)
        act(model, optimizer)

    return run


def _clip(model: nn.Module, optimizer: sluice.DistributedOptimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
    optimizer.step()


def _skip(_: nn.Module, optimizer: sluice.DistributedOptimizer) -> None:
    with optimizer.skip_synchronize():
        optimizer.step()


def _named(change: Callable[[list[Any]], Any]) -> Callable[[], None]:
    def run() -> None:
        model = new_model()
        sluice.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), change(list(model.named_parameters())))

    return run


def _scheduled() -> None:
    optimizer = torch.optim.SGD(new_model().parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    sluice.DistributedOptimizer(optimizer)


HOOKED = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (_sparse, "step 1, gradient of table.weight: the gradient of table.weight is sparse"),
        (_unfrozen, "rank 0, step 1: 0.bias was not trainable when the DistributedOptimizer was made"),
        (_with(lambda _, optimizer: optimizer.zero_grad()), "zero_grad() was called between a backward pass and step()"),
        (_with(lambda model, _: backward(model)), "0.* got the gradients of 2 backward passes since the last step, wanted 1"),
        pytest.param(
            _with(_clip),
            "the gradient of 1.bias changed between the backward pass and the exchange: call synchronize() first",
            marks=pytest.mark.skipif(not HOOKED, reason="gradients are handed over in the step"),
        ),
        (_with(_skip), "skip_synchronize() without synchronize()"),
        (_named(lambda named: named[:2]), "lacks 2 of the optimizer's parameters; the first is parameter 2 of group 0, of shape (2, 3)"),
        (_named(lambda named: [*named, ("0.bias", named[0][1])]), "named_parameters has 0.bias more than once"),
        (_named(lambda named: [parameter for _, parameter in named]), "contains a Parameter, wanted pairs of a name and a tensor"),
        (_scheduled, "wrapped the optimizer's step already: make the DistributedOptimizer first"),
        (lambda: new_optimizer(new_model(), backward_passes_per_step=0), "backward_passes_per_step is 0"),
        (lambda: new_optimizer(new_model().requires_grad_(False)), "no trainable parameters"),
        (lambda: sluice.DistributedOptimizer(new_model()), "takes an optimizer of PyTorch, and not a Sequential"),  # type: ignore[arg-type]
        (lambda: sluice.broadcast_parameters({"epoch": 3}), "epoch is a int and no tensor: use broadcast_object"),
        (lambda: sluice.DistributedDataParallel(new_model(), process_group=1), "leave process_group out"),
        (lambda: sluice.DistributedDataParallel(nn.SyncBatchNorm(3)), "SyncBatchNorm without torch.distributed.init_process_group"),
        (lambda: sluice.DistributedDataParallel(new_model(), broadcast_buffers=True), "does not send buffers after the start"),
    ],
)
def test_what_is_wrong_is_said(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(sluice.SluiceError) as error:
        call()
    pattern = words.replace("0.*", "1.bias")
    assert pattern in str(error.value), error.value


def test_ddp_alone() -> None:
    model = new_model()
    wrapped = sluice.DistributedDataParallel(model)
    for _ in range(2):
        wrapped(torch.ones(3, 4)).sum().backward()
    assert wrapped.session.step == 2
    with wrapped.no_sync():
        wrapped(torch.ones(3, 4)).sum().backward()
    assert wrapped.session.step == 2


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="PyTorch 1.13 scales on CUDA alone")
@pytest.mark.parametrize("kind", [sluice.GradScaler, getattr(torch.amp, "GradScaler", None)])
@pytest.mark.parametrize("fused", [False, True])
def test_scalers_see_means(kind: Any, fused: bool) -> None:
    expected, found = new_model(), new_model()
    plain, inner = (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused) for model in (expected, found))
    scales = []
    for model, optimizer, scaler in (
        (expected, plain, torch.amp.GradScaler("cpu", init_scale=1024.0)),
        (found, sluice.DistributedOptimizer(inner), kind("cpu", init_scale=1024.0)),
    ):
        for factor in (1.0, float("nan"), 2.0):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(3, 4)).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
        assert pickle.loads(pickle.dumps(scaler)).get_scale() == scaler.get_scale()
    assert scales == [512.0, 512.0]
    assert all(torch.equal(a, b) for a, b in zip(expected.parameters(), found.parameters(), strict=True))


def test_questions_about_the_place_of_a_process() -> None:
    assert (sluice.rank(), sluice.size(), sluice.local_rank(), sluice.is_initialized()) == (0, 1, 0, True)
    assert sluice.broadcast_object([1]) == [1]
    sluice.broadcast_parameters(new_model())
    session = sluice.init(quiet=True)
    assert "<td>0 of 1</td>" in session._repr_html_()
    sluice.shutdown()
    assert "closed" in session._repr_html_()
    assert not sluice.is_initialized()
