# SPDX-License-Identifier: Apache-2.0
"""Followers of a real job with two ranks: in Python, and a script that does not know Sluice."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Start, await_all, await_that
from torch import nn

import sluice
from sluice._programs import program
from sluice._servers import ShardProcess, TokenFile

SECRET = "a-secret-of-this-test-that-is-long-enough"
TRAINED = ["0.bias", "0.weight", "2.weight"]
JOB = {
    "name": "followed",
    "workers": 2,
    "mode": "local_sgd",
    "local_steps": 3,
    "outer_optimizer": "average",
    "compression": {"uplink": "int8", "downlink": "int8", "min_elements": 8},
    "followers": {"types": ["bf16", "fp32"]},
}


def new_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))


def write_data(path: pathlib.Path, seed: int) -> str:
    """Writes made data that a small network learns."""
    teacher = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(1000, 10, generator=torch.Generator().manual_seed(seed))
    torch.save((inputs, (inputs @ teacher).argmax(dim=1)), path)
    return str(path)


class Job:
    """A server and two ranks, which wait after the first exchange until the test says `followed`, and train until it says `enough`."""

    def __init__(self, start: Start, folder: pathlib.Path, settings: dict[str, Any] = JOB) -> None:
        self.folder = folder
        path = folder / "job.json"
        path.write_text(json.dumps(settings))
        self.token_file = str(folder / "token")
        pathlib.Path(self.token_file).write_text(SECRET + "\n")
        pathlib.Path(self.token_file).chmod(0o600)
        self._token = TokenFile(SECRET)
        self._server = ShardProcess(path.read_text(), 0, "127.0.0.1:0", "", "off", self._token)
        self.address = self._server.address
        self.ranks = start("followed.py", str(path), self.address, self.token_file, write_data(folder / "data.pt", 1))

    def say(self, word: str) -> None:
        (self.ranks[0].said.parent / word).touch()

    def await_parameters(self) -> dict[str, torch.Tensor]:
        """Waits until the job has ended, and returns rank 0's parameters."""
        await_all(self.ranks)
        parameters: dict[str, torch.Tensor] = torch.load(self.ranks[0].said.parent / "parameters.pt")
        return {name: values.detach() for name, values in parameters.items()}

    def follow(self, **options: Any) -> sluice.Follower:
        return sluice.follow(self.address, **{"token_file": self.token_file, "quiet": True, **options})

    def end(self) -> None:
        self._server.end()
        self._token.close()


@pytest.fixture
def job(start: Start, tmp_path: pathlib.Path) -> Iterator[Job]:
    found = Job(start, tmp_path)
    yield found
    found.end()


def test_the_last_version_is_the_jobs_result(job: Job) -> None:
    follower = job.follow()
    first = next(follower)
    before = {name: values.clone() for name, values in first.state_dict().items()}
    job.say("followed")
    versions = [first]
    for version in follower:
        versions.append(version)
        if len(versions) == 5:
            break  # A loop can be left and continued.
    job.say("enough")
    versions += list(follower)
    parameters = job.await_parameters()
    steps = [version.step for version in versions]
    assert steps == sorted(set(steps)) and len(steps) > 5
    last = versions[-1]
    assert last.step == job.ranks[0].await_word("exchanges")
    assert (first.term, last.term) == (0, 0)
    assert all(version.changed > 0 and version.received_bytes > 0 for version in versions)
    tensors = last.state_dict()
    assert sorted(tensors) == TRAINED
    for name, values in tensors.items():
        assert values.dtype == torch.bfloat16
        assert torch.equal(values, parameters[name].to(torch.bfloat16)), name
    # The first version is still what it was.
    assert all(torch.equal(values, before[name]) for name, values in first.state_dict().items())
    assert not torch.equal(before["0.weight"], tensors["0.weight"])

    model = new_model()
    bias = model[2].bias.detach().clone()
    assert last.load_into(model) == ["2.bias"]
    assert torch.equal(model[0].weight, parameters["0.weight"].to(torch.bfloat16).float())
    assert torch.equal(model[2].bias, bias)
    with pytest.raises(sluice.SluiceError, match="no parameter of this name"):
        last.load_into(nn.Linear(3, 3))
    with pytest.raises(sluice.SluiceError, match=r"0.weight has shape \[64, 10\] in the job and \[64, 9\]"):
        last.load_into(nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 4)))
    follower.close()
    with pytest.raises(sluice.SluiceError, match="closed"):
        next(follower)


def test_rank_0_uploads_the_parameters_that_ranks_keep(start: Start, tmp_path: pathlib.Path) -> None:
    rounds = ("mode", "local_steps", "outer_optimizer")
    job = Job(start, tmp_path, {key: value for key, value in JOB.items() if key not in rounds})
    job.say("followed")  # A version is uploaded when the step after it begins.
    versions = []
    for version in job.follow(type="fp32"):
        versions.append(version)
        if len(versions) == 5:
            job.say("enough")
    parameters = job.await_parameters()
    job.end()
    steps = [version.step for version in versions]
    assert steps == sorted(set(steps)) and len(steps) > 5
    assert steps[-1] == job.ranks[0].await_word("exchanges")
    for name, values in versions[-1].state_dict().items():
        assert torch.equal(values, parameters[name]), name


WITHOUT_TORCH = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules["torch"] = None
import sluice
address, token_file = sys.argv[1:]
for version in sluice.follow(address, token_file=token_file):
    print(json.dumps({name: [str(a.dtype), a.shape, a.flatten().tolist()] for name, a in version.state_dict().items()}), flush=True)
"""


def test_what_ends_the_waiting(job: Job) -> None:
    with job.follow(type="fp32") as follower:
        version = next(follower)
        # The ranks wait, so there is no second version.
        codes: list[str] = []

        def wait() -> None:
            with pytest.raises(sluice.SluiceError) as caught:
                next(follower)
            codes.append(caught.value.code)

        thread = threading.Thread(target=wait)
        thread.start()
        follower.interrupt()
        thread.join()
        assert codes == ["CANCELLED"]

    command = [sys.executable, "-c", WITHOUT_TORCH, job.address, job.token_file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None and script.stderr is not None
        found = json.loads(script.stdout.readline())
        script.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in script.stderr.read()
    assert script.returncode == -signal.SIGINT
    for name, values in version.state_dict().items():
        bits = values.to(torch.bfloat16).flatten().view(torch.int16).numpy().view(np.uint16)
        assert found[name] == ["uint16", list(values.shape), bits.tolist()]

    with pytest.raises(sluice.SluiceError, match="does not offer fp16, but bf16, fp32") as refused:
        next(job.follow(type="fp16"))
    assert refused.value.code == "INVALID_ARGUMENT"
    with pytest.raises(sluice.SluiceError) as refused:
        next(job.follow(token_file=""))
    assert refused.value.code == "UNAUTHENTICATED"
    job.say("enough")
    job.say("followed")
    job.await_parameters()


def test_wrong_arguments() -> None:
    with pytest.raises(sluice.SluiceError, match="127.0.0.1:1") as nobody:
        next(sluice.follow("127.0.0.1:1", patience=0))
    assert nobody.value.code == "UNAVAILABLE"
    with pytest.raises(sluice.SluiceError, match="type is 'int8': use one of fp32, bf16, fp16"):
        sluice.follow("127.0.0.1:1", type="int8")  # type: ignore[arg-type]
    with pytest.raises(sluice.SluiceError, match="/missing"):
        sluice.follow("127.0.0.1:1", token_file="/missing")


def test_a_script_that_does_not_know_sluice_sees_the_loss_fall(job: Job) -> None:
    if importlib.util.find_spec("safetensors") is None:
        pytest.skip("safetensors is not installed: scripts/test-python.sh installs it")
    output = job.folder / "follower"
    reader = [sys.executable, pathlib.Path(__file__).parent / "foreign_reader.py", output / "model.safetensors"]
    follow = [program("sluice"), "follow", job.address, "-o", output, "--token-file", job.token_file]
    loaded = job.folder / "loaded"
    with loaded.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in (*reader, write_data(job.folder / "fixed.pt", 2), *follow)], stdout=file, env=dict(os.environ)
        )

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in loaded.read_text().splitlines() if line.endswith("}}")]

    try:
        await_that(lambda: lines() or process.poll() is not None, "the reader has a version")
        job.say("followed")
        await_that(lambda: (len(lines()) >= 10 and lines()[-1]["version"] >= 20) or process.poll() is not None, "the reader has ten versions")
        job.say("enough")
        job.await_parameters()
        await_that(lambda: process.poll() is not None, "the reader ends")
    finally:
        process.kill()
    assert process.wait() == 0
    found = lines()
    assert len(found) >= 10
    assert found[-1]["version"] == job.ranks[0].await_word("exchanges")
    assert found[0]["types"] == {name: "torch.bfloat16" for name in TRAINED}
    assert found[-1]["loss"] < 0.8 * found[0]["loss"], [line["loss"] for line in found]
