# SPDX-License-Identifier: Apache-2.0
"""Complaints of users of other libraries for distributed training. Each test names the public reports and shows how Sluice behaves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import Rank, Start
from torch import nn

import sluice
from sluice import Forecast, compress
from sluice._forecast import forecast_of
from sluice._programs import program


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("SLUICE_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.delenv(name)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # The tensors are small.
    yield
    torch.set_num_threads(threads)
    sluice.shutdown()


@pytest.fixture(scope="module")
def ranks(start: Start) -> list[Rank]:
    return start("reports.py")


def train(model: nn.Module, steps: int, rate: float = 0.05, **options: Any) -> list[float]:
    """Returns the losses of a small regression. Without options, the plain optimizer trains."""
    inner = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer: torch.optim.Optimizer = inner
    if options:
        sluice.init(quiet=True, **options)
        optimizer = sluice.DistributedOptimizer(inner, model.named_parameters())
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(20, 5, generator=generator)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 20, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x @ target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def new_model(width: int = 64) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, width), nn.Linear(width, 5))


def test_01_costs_are_known_before_and_during_training() -> None:
    """pytorch/pytorch#74148: a compressing hook helps on slow links alone, and nothing says so before the run."""
    report = compress.error(torch.randn(300, 300), "topk:1%+int4")
    assert report.bits_per_element < 1 and report.encode_ns > 0
    train(new_model(500), 3, rate=0.01, uplink="topk:1%+int4", downlink="int8")
    figures = sluice._session.open_sessions()[0].figures()
    assert figures.ratio_up > 10 and figures.exposed_seconds > 0 and figures.encode_seconds > 0


@pytest.fixture(scope="module")
def forecast() -> dict[str, float]:
    """`sluice doctor` measures a link. Returns the predicted seconds of a step by the uplink's codec."""
    doctor = [str(program("sluice")), "doctor", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(doctor, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        address = listener.stdout.readline().split()[-1]
        outputs = [subprocess.run([*doctor, "--connect", address], capture_output=True, text=True, check=True).stdout, listener.stdout.read()]
        assert listener.wait() == 0
    tables = [re.findall(r"^(\S+) +\S+ +[0-9.]+/[0-9.]+ +(\S+)$", output, re.MULTILINE) for output in outputs]
    assert [name for name, _ in tables[0]] == [name for name, _ in tables[1]], outputs
    return {name: float(seconds) for name, seconds in tables[0]}


def test_01_a_step_with_and_without_compression_is_predicted(forecast: dict[str, float]) -> None:
    """The same report: each codec's time on the measured link is known before the run."""
    assert forecast["none"] > forecast["fp16"] > forecast["int8"] > forecast["topk:1%+int4"] > 0


def test_02_sharded_models_can_compress(tmp_path: Any) -> None:
    """pytorch/pytorch#64665: FSDP has no compression of gradients."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip(f"PyTorch {torch.__version__} has no FSDP2")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = new_model(500)
        fsdp.fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session = sluice.fsdp_attach(model, optimizer, uplink="topk:1%+int4", downlink="none", quiet=True)
        model(torch.randn(4, 20)).square().mean().backward()
        optimizer.step()
        sent = sum(int((p.grad.to_local() != 0).sum()) for p in model.parameters())
        assert session.step == 1 and session.figures().ratio_up > 20
        assert 0 < sent < 0.05 * sum(p.numel() for p in model.parameters())
    finally:
        sluice.shutdown()
        dist.destroy_process_group()


SILENT = """
import sys, torch, torch.distributed as dist, sluice
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
session = sluice.attach(model, quiet=True)
(model if sys.argv[2] == "wrapper" else model.module)(torch.ones(1, 2)).sum().backward()
session.close()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("called", ["wrapper", "module"])
def test_03_a_hook_that_is_never_called_is_told(called: str, tmp_path: Any) -> None:
    """pytorch/pytorch#109774, #104674, #147123: compiled models leave DDP's hook out without a word."""
    done = subprocess.run([sys.executable, "-c", SILENT, str(tmp_path / "store"), called], capture_output=True, text=True, check=True)
    assert ("DDP never called Sluice's hook" in done.stderr) == (called == "module"), done.stderr


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="PyTorch 1.13 has no torch.compile")
def test_03_compiled_models_train_without_ddp() -> None:
    """The same reports: the optimizer exchanges the gradients of a compiled model, and needs no hook of DDP."""
    expected, found = new_model(), new_model()
    losses = train(torch.compile(expected, backend="eager"), 3)
    assert train(torch.compile(found, backend="eager"), 3, uplink="none", downlink="none") == losses


def test_04_a_static_graph_with_accumulation_exchanges(ranks: list[Rank]) -> None:
    """pytorch/pytorch#187732, huggingface/accelerate#3679: `static_graph` with `no_sync` stops exchanging, and replicas drift."""
    for rank in ranks:
        assert rank.await_word("static_graph") == {"steps": [1, 2, 3, 4], "equal": [True] * 4}


def test_04_replicas_that_drift_are_told(ranks: list[Rank]) -> None:
    """The same reports: a rank whose parameters differ ends the job, and the error says which, since when, and in which tensor."""
    texts = [rank.await_word("drift")["text"] for rank in ranks]
    for text in texts:
        assert "after step 1 the parameters of rank " in text and "differ from those of rank " in text, texts
        assert "(the ranks have different values of weight): " in text, texts
    for rank in ranks:
        told = [line for line in rank.text().splitlines() if "have different values of" in line and "WARNING" in line]
        assert len(told) == 1 and f"WARNING rank {rank.rank}, step 1: the ranks have different values of weight. Only" in told[0], told


def test_05_the_time_of_a_step_has_parts() -> None:
    """pytorch/pytorch#73600, #74157: DDP is slower than one process, and no figure shows where the time goes."""
    with torch.profiler.profile() as profile:
        train(new_model(), 2, uplink="int8", downlink="int8")
    names = {event.key for event in profile.key_averages()}
    assert {"sluice.wait", "sluice.apply"} <= names
    figures = sluice._session.open_sessions()[0].figures()
    assert min(figures.exposed_seconds, figures.encode_seconds, figures.decode_seconds) > 0


def test_06_all_codecs_have_one_interface_and_a_state() -> None:
    """huggingface/accelerate#2841: a wrapper for hooks passes options to one of them alone, and saves no state."""
    for info in compress.codecs():
        with sluice.init(new_model(), uplink=info.example, downlink="none", quiet=True) as session:
            for i in (3, 2, 1, 0):
                session.submit(i, torch.ones(session._rows[i][1]))
            session.wait()
            state = session.state_dict()
            assert state["step"] == 1 and state["uplink"] == session.figures().uplink
        with sluice.init(uplink=info.example, downlink="none", quiet=True) as session:
            session.load_state_dict(state)


def test_07_one_process_tells_the_traffic_of_many(ranks: list[Rank]) -> None:
    """speechbrain/speechbrain#1096, pytorch/pytorch#36298: a second machine makes training slower, and that shows only once it runs."""
    for rank in ranks:
        found = rank.await_word("traffic")
        for together, single in zip(found["together"], found["alone"], strict=True):
            # Two ranks also count the messages around the frames.
            assert together == pytest.approx(single, rel=0.05), found


def test_07_a_link_is_measured_before_the_first_run(forecast: dict[str, float]) -> None:
    """The same reports: both rates are measured, and the model's dense exchange is predicted with them."""
    # The sparse codec sends about 3 % of the bytes.
    assert forecast["none"] > 10 * forecast["topk:1%+int4"]


def test_08_codecs_work_in_hooks_of_ones_own() -> None:
    """sands-lab/grace#17, #21: codecs of a framework do not fit into PyTorch's hooks, and 16 bits are not enough."""
    model = new_model()
    for parameter in model.parameters():
        codec = compress.Codec("topk:10%+int4", tuple(parameter.shape))
        parameter.register_hook(lambda gradient, codec=codec: torch.from_numpy(compress.decode(codec.encode(gradient))))
    losses = train(model, 80)
    assert losses[-1] < losses[0] / 20


def test_09_no_version_of_pytorch_is_compiled_in() -> None:
    """horovod/horovod#1157, #4051, #3902: each new PyTorch breaks the build. The extension knows none (see test_package.py)."""
    code = "import sys; sys.modules['torch'] = None; import numpy; from sluice import compress; print(len(compress.encode(numpy.ones(9), 'int8').data))"
    assert int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) > 0


def test_10_a_failed_connection_names_address_and_reason() -> None:
    """learning-at-home/hivemind#624, #351, Lightning #16407, #16183: peers on one machine do not find each other, and no reason is given."""
    with pytest.raises(sluice.SluiceError, match=r"127\.0\.0\.1:1\b.*(refused|answer)") as error:
        sluice.init(new_model(), coordinator="127.0.0.1:1", rank=0, world_size=2, join_timeout=0.2, quiet=True)
    assert error.value.code == "UNAVAILABLE"


def test_11_one_time_out_names_the_rank_that_is_missing(ranks: list[Rank]) -> None:
    """meta-pytorch/torchft#329, #164, pytorch/torchtitan#2899: nested time-outs take minutes, and do not say who is missing."""
    found = ranks[0].await_word("missing")
    assert found["text"].startswith("rank 0 waited 1 s (join_timeout) for rank 1, which has not called sluice.init"), found
    assert found["code"] == "UNAVAILABLE"


def test_12_all_shapes_and_types_are_compressed() -> None:
    """meta-pytorch/torchft#203, #209: matrices alone are quantized."""
    shapes: list[tuple[int, ...]] = [(), (7,), (3, 5), (2, 3, 4), (2, 3, 4, 5)]
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        model = nn.ParameterList([nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes])
        with sluice.init(model, uplink="int8", downlink="int8", quiet=True) as session:
            gradients = [torch.randn(shape).to(dtype) for shape in shapes]
            gradients[-1] = gradients[-1].to(memory_format=torch.channels_last)
            for i in reversed(range(len(shapes))):
                session.submit(i, gradients[i])
            session.wait()
            for i, gradient in enumerate(gradients):
                mean = torch.empty_like(gradient)
                session.apply(i, mean)
                assert float((mean - gradient).abs().max()) <= 0.02 * float(gradient.abs().max()), (dtype, shapes[i])
            # Frames of so small tensors are mostly headers.
            assert session.figures().bytes_up > 0


def test_13_the_first_step_is_compressed() -> None:
    """microsoft/DeepSpeed#5046, #818, #770: compression begins after thousands of steps, and needs NCCL, MPI or CuPy."""
    train(new_model(500), 1, rate=0.01, uplink="topk:1%+int4", downlink="int8")
    assert sluice._session.open_sessions()[0].figures().ratio_up > 20
    assert not {"mpi4py", "cupy"} & set(sys.modules)


def test_13_the_first_steps_say_what_to_expect(ranks: list[Rank]) -> None:
    """The same reports: what compression gains on this link is known after four steps."""
    for rank in ranks:
        found = rank.await_word("traffic")
        forecast = Forecast(**found["forecast"])
        up, down, dense = (total / 5 for total in found["together"])
        assert forecast.bytes_up == pytest.approx(up, rel=0.5) and forecast.bytes_down == pytest.approx(down, rel=0.1)
        assert 0 < forecast.wait_seconds <= forecast.step_seconds
        gain = 2 * dense / (forecast.bytes_up + forecast.bytes_down)
        assert forecast.dense_seconds / forecast.wait_seconds == pytest.approx(gain, rel=0.01)


def test_13_a_forecast_says_whether_compression_gains() -> None:
    def figures(steps: int, seconds: float) -> Any:
        return SimpleNamespace(steps=steps, bytes_up=250_000 * steps, bytes_down=1_000_000 * steps, dense_bytes=4_000_000 * steps, exposed_seconds=seconds)

    slow = forecast_of(figures(1, 5.0), figures(4, 8.0), 4.5)
    assert str(slow) == (
        "an exchange sends 244.1 KiB and receives 976.6 KiB, and the script waits 1 of 1.5 s for it (10 Mb/s); `none` would need 6.4 s"
    )
    assert str(forecast_of(figures(1, 5.0), figures(4, 5.003), 3.0)).endswith("`none` would need 0.0064 s, so compression gains little")
    assert forecast_of(figures(1, 5.0), figures(1, 5.0), 3.0) is None


def test_14_a_tensor_may_be_larger_than_a_message(ranks: list[Rank]) -> None:
    """adap/flower#3236, #3006, #5642, OpenMined/PySyft#5587: models over the limit of a message fail, and gradients are not compressed."""
    for rank in ranks:
        found = rank.await_word("large")
        assert found["values"] == [0.5] and found["bytes"] > 20_000_000


@pytest.mark.parametrize("uplink", ["int4", "topk:5%+int4", "ternary:0.5"])
def test_15_low_precision_reaches_the_loss_of_float32(uplink: str) -> None:
    """hpcaitech/ColossalAI#5920, PrimeIntellect prime-diloco#23, VeOmni#1167: exchanges in low precision cost accuracy."""
    dense = train(new_model(), 80)
    compressed = train(new_model(), 80, uplink=uplink, downlink="int8")
    assert max(dense[-10:]) < dense[0] / 1000
    assert max(compressed[-10:]) < dense[0] / 1000


def test_15_worse_losses_than_those_of_a_reference_run_are_told(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The same reports: nothing says that the codecs harm this model."""
    path = tmp_path / "losses.json"
    reference = sluice.AccuracyGuard(path, record=True, every=10)
    assert all([reference.add(loss) for loss in train(new_model(), 80)])
    good, harmed, lost = (sluice.AccuracyGuard(path) for _ in range(3))
    assert all([good.add(loss) for loss in train(new_model(), 100, uplink="int8", downlink="int8")])
    assert capsys.readouterr().err == ""
    found = [harmed.add(loss) for loss in train(new_model(), 80, uplink="topk:0.1%", downlink="none")]
    assert found[0] and not found[-1]
    assert harmed.worse_since is not None and harmed.worse_since % 10 == 1
    text = capsys.readouterr().err
    assert text.count("WARNING the losses are worse than in the reference run since step ") == 1 and str(path) in text
    assert [lost.add(torch.tensor(float("nan"))) for _ in range(20)][-1] is False and lost.worse_since == 1
    with pytest.raises(sluice.SluiceError, match="missing.json is not the file of a reference run"):
        sluice.AccuracyGuard(tmp_path / "missing.json")


def test_all_checks_of_the_ranks_end(ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.await_end()
        assert rank.await_word("drift")
