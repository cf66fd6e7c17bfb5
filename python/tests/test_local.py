# SPDX-License-Identifier: Apache-2.0
"""A process that is alone: no server, no other rank."""

from __future__ import annotations

import os
import pathlib

import pytest
import torch
from torch import nn

import sluice


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SLUICE_") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


def exchange(session: sluice.Session, gradients: list[torch.Tensor]) -> None:
    for i in reversed(range(len(gradients))):
        session.submit(i, gradients[i])
    session.wait()
    for i, gradient in enumerate(gradients):
        session.apply(i, gradient)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_means_are_scaled_and_rounded_as_by_torch(dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (101, 37), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    values = bits.view(torch.float32).nan_to_num(1.0, 2.0, 3.0)
    values[:50] = torch.randn(50, 37, generator=torch.Generator().manual_seed(2))
    with sluice.init(nn.Linear(37, 101, bias=False), uplink="none", downlink="none", quiet=True) as session:
        session.submit(0, values)
        session.wait()
        # The core writes to a copy if the layout differs.
        for mean in (torch.empty(101, 37, dtype=dtype), torch.empty(37, 101, dtype=dtype).t()):
            session.apply(0, mean, scale=0.75)
            assert torch.equal(mean, (values * 0.75).to(dtype))


def test_codecs_run_with_feedback() -> None:
    model = nn.Linear(50, 40)
    with sluice.init(model, uplink="topk:5%", downlink="int8", quiet=True) as session:
        assert isinstance(session, sluice.LocalSession)
        assert (session.rank, session.world_size) == (0, 1)
        torch.manual_seed(0)
        constant = [torch.randn(40, 50), torch.randn(40)]
        total = [torch.zeros(40, 50), torch.zeros(40)]
        for step in range(1, 301):
            gradients = [g.clone() for g in constant]
            exchange(session, gradients)
            assert session.step == step
            total = [t + g for t, g in zip(total, gradients, strict=True)]
        # What each step leaves out comes later: the mean over steps is the gradient.
        for t, g in zip(total, constant, strict=True):
            assert float((t / 300 - g).norm() / g.norm()) < 0.1
        assert session.figures().ratio_up > 5
        assert session.figures().steps == 300


def test_lossless_codecs_change_nothing() -> None:
    model = nn.Linear(5, 4)
    with sluice.init(model, uplink="none", downlink="none", quiet=True) as session:
        for _ in range(3):
            gradients = [torch.randn(4, 5), torch.randn(4)]
            expected = [g.clone() for g in gradients]
            exchange(session, gradients)
            assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))


def test_a_gradient_that_is_not_finite_becomes_zero(capfd: pytest.CaptureFixture[str]) -> None:
    with sluice.init(nn.Linear(5, 4), quiet=True) as session:
        gradients = [torch.full((4, 5), float("nan")), torch.randn(4)]
        exchange(session, gradients)
        assert all(bool((g == 0).all()) for g in gradients)
        assert session.figures().skipped_bundles == 1
    assert "rank 0, step 1: the gradient of weight is not finite" in capfd.readouterr().err


def test_a_plain_module_stays_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(5, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    session = sluice.attach(model, optimizer, uplink="topk:1%+int4")
    assert (optimizer.param_groups[0]["momentum"], optimizer.param_groups[0]["lr"]) == (0.9, 0.1)
    session.close()
    assert "is not wrapped in DistributedDataParallel and this process is alone" in capfd.readouterr().err


def test_environment_overrides_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_UPLINK", "topk:1%+int4")
    with sluice.init(uplink="int8", quiet=True) as session:
        assert session.figures().uplink == "topk:1%+int4"
        assert session.figures().downlink == "int8"


def test_a_job_as_a_mapping_or_a_file(tmp_path: pathlib.Path) -> None:
    with sluice.init(job={"compression": {"uplink": "int4"}, "seed": 5}, quiet=True) as session:
        assert session.figures().uplink == "int4"
    file = tmp_path / "job.yaml"
    file.write_text("name: mine\ncompression: {uplink: ternary:0.5}\n")
    with sluice.init(job=file, quiet=True) as session:
        assert session.figures().uplink == "ternary:0.5"


def test_codecs_that_have_no_effect_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: mine\ncompression: {uplink: 'topk:1%+int4'}\n")
    with sluice.init(job=file, uplink="topk:1.0%+int4", downlink="none", quiet=True):
        pass  # The same codecs as the job's.
    with pytest.raises(sluice.SluiceError) as error:
        sluice.init(job=file, uplink="int4", quiet=True)
    assert f"the script has uplink 'int4', which has no effect, because {file} has `topk:1%+int4`: set `compression.uplink` in {file}" in str(error.value)
    monkeypatch.setenv("SLUICE_JOB", str(file))  # As `sluice run` sets it.
    monkeypatch.setenv("SLUICE_JOB_SOURCE", "/home/me/mine.yaml")
    with pytest.raises(sluice.SluiceError, match=r"because /home/me/mine.yaml has `none`: set `compression.downlink` in /home/me/mine.yaml"):
        sluice.init(downlink="int8", quiet=True)
    monkeypatch.setenv("SLUICE_JOB_SOURCE", "")
    monkeypatch.setenv("SLUICE_UPLINK", "int4")
    with pytest.raises(sluice.SluiceError, match=r"\$SLUICE_UPLINK is 'int4', .* start `sluice run` with --set compression.uplink=int4, or remove it"):
        sluice.init(quiet=True)


def test_codecs_complete_the_compression_of_a_mapping() -> None:
    with sluice.init(uplink="int4", job={"compression": {"min_elements": 8}}, quiet=True) as session:
        assert (session.figures().uplink, session.figures().downlink) == ("int4", "int8")
    with sluice.init(uplink="int4", job={"compression": {"downlink": "none"}}, quiet=True) as session:
        assert (session.figures().uplink, session.figures().downlink) == ("int4", "none")
    with pytest.raises(sluice.SluiceError, match="the script has uplink 'int4', which has no effect, because job has `int8`"):
        sluice.init(uplink="int4", job={"compression": {"uplink": "int8"}}, quiet=True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"uplink": "int9"}, "INVALID_ARGUMENT", "int9"),
        ({"job": {"compresion": {}}}, "INVALID_ARGUMENT", "did you mean 'compression'"),
        ({"job": {"workers": 3}}, "INVALID_ARGUMENT", "has 3 workers, and there are 1 ranks"),
        ({"job": {"mode": "async"}}, "UNIMPLEMENTED", "mode async"),
        ({"job": {"checkpoint": {"dir": "/tmp/c"}}}, "UNIMPLEMENTED", "a process that is alone has none: remove it, and save Session.state_dict()"),
        ({"job": {"checkpoint": {"dir": "/tmp/c"}}, "coordinator": "127.0.0.1:1", "local_steps": 2}, "UNIMPLEMENTED", "mode local_sgd has none"),
        ({"job": "/nowhere/job.yaml"}, "NOT_FOUND", "cannot read the job file /nowhere/job.yaml"),
        ({"rank": 2, "world_size": 2}, "INVALID_ARGUMENT", "rank 2 is not one of 2 ranks"),
        ({"rank": 0}, "INVALID_ARGUMENT", "go together"),
        ({"threads": 0}, "INVALID_ARGUMENT", "threads is 0: give 1 to 256"),
        ({"rank": 0, "world_size": 2}, "FAILED_PRECONDITION", "start them with torchrun"),
        ({"coordinator": "127.0.0.1:1", "rank": 0, "world_size": 2, "join_timeout": 0.2}, "UNAVAILABLE", "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said(arguments: dict[str, object], code: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(sluice.SluiceError) as error:
        sluice.init(nn.Linear(2, 2), quiet=True, **arguments)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert error.value.code == code


def test_parameters_that_cannot_be_exchanged_are_named() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(sluice.SluiceError, match="parameter weight has dtype torch.complex64"):
        sluice.init(model, quiet=True)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(sluice.SluiceError, match="no trainable parameters"):
        sluice.init(frozen, quiet=True)


def test_a_closed_session_and_a_fork_say_so() -> None:
    session = sluice.init(nn.Linear(2, 2), quiet=True)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session.figures()
        except sluice.ForkError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        assert f"belongs to process {os.getpid()}" in said.read()
    os.waitpid(child, 0)
    session.close()
    session.close()
    with pytest.raises(sluice.SluiceError, match="closed"):
        session.figures()


def test_states_must_fit() -> None:
    with sluice.init(quiet=True) as session:
        session.load_state_dict(session.state_dict())
        with pytest.raises(sluice.SluiceError, match="saved with uplink 'int4', and this job has 'int8'"):
            session.load_state_dict({**session.state_dict(), "uplink": "int4"})
