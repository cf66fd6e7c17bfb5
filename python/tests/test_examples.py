# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/python, on two ranks and real data."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from conftest import Start, await_all

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples/python"
PLAIN = ["mnist", "ddp_tutorial", "nanogpt", "torchvision_classification"]
FRAMEWORKS = {"accelerate": "accelerate_nlp", "lightning": "lightning_boring"}


def run(script: str, *arguments: str) -> str:
    """Returns what the script prints under torchrun."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(EXAMPLES / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", text, re.M)]


def ratios(text: str) -> tuple[float, float]:
    """Returns how many times fewer bytes the script sent and received than DDP, which on two ranks sends all gradients once."""
    found = re.search(r"^bytes of a rank: (\d+) up, (\d+) down, (\d+) without Sluice$", text, re.M)
    assert found is not None, text
    up, down, dense = map(int, found.groups())
    return dense / up, dense / down


def test_fashion_mnist() -> None:
    text = run("fashion_mnist.py", "--steps", "40", "--uplink", "topk:10%+int4", "--downlink", "int8")
    first, *_, last = losses(text)
    assert last < 0.7 * first, text
    accuracy = re.search(r"^test accuracy ([\d.]+) %$", text, re.M)
    assert accuracy is not None and float(accuracy[1]) > 50, text
    up, down = ratios(text)
    assert up > 20 and down > 3.5


def test_char_gpt(tmp_path: pathlib.Path) -> None:
    bible = tmp_path / "bible.txt"
    bible.write_bytes(subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
    assert bible.stat().st_size > 4_000_000
    text = run("char_gpt.py", str(bible), "--steps", "40")
    first, *_, last = losses(text)
    assert first > 4
    assert last < 0.7 * first, text
    up, down = ratios(text)
    assert up > 6.5 and down > 3.5


def test_types_are_checked() -> None:
    scripts = [str(EXAMPLES / name) for name in ("fashion_mnist.py", "char_gpt.py")]
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check_diffs(start: Start, folder: pathlib.Path, names: list[str]) -> None:
    """Applies the diffs to copies of their scripts. Each script then exchanges its gradients through one session."""
    for name in names:
        (folder / f"{name}.py").write_text((EXAMPLES / f"diffs/{name}.py").read_text())
        subprocess.run(["git", "apply", str(EXAMPLES / f"diffs/{name}.diff")], cwd=folder, check=True)
    ranks = start("scripts.py", *(str(folder / f"{name}.py") for name in names))
    await_all(ranks)
    for name in names:
        for rank in ranks:
            (session,) = rank.await_word(name)
            assert session["steps"] > 0
            assert session["ratio"] > 1, (name, session)  # A model with 66 parameters gains little, because frames have headers.


def test_diffs(start: Start, tmp_path: pathlib.Path) -> None:
    check_diffs(start, tmp_path, PLAIN)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_diffs_for_frameworks(start: Start, tmp_path: pathlib.Path, framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: scripts/test-python.sh --frameworks installs it")
    check_diffs(start, tmp_path, [FRAMEWORKS[framework]])


def test_each_script_has_a_diff() -> None:
    names = sorted([*PLAIN, *FRAMEWORKS.values()])
    for suffix in ("py", "diff"):
        assert sorted(file.stem for file in (EXAMPLES / "diffs").glob(f"*.{suffix}")) == names
    readme = (EXAMPLES / "README.md").read_text()
    for name in names:
        assert f"diffs/{name}.diff" in readme


NOTEBOOK = EXAMPLES / "sluice.ipynb"


def test_the_notebook_is_saved_without_results() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert 5 <= len(cells) <= 8
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), cell["id"], "exec")


def test_the_notebook_runs() -> None:
    if importlib.util.find_spec("nbclient") is None:
        pytest.skip("nbclient is not installed: scripts/test-python.sh --frameworks installs it")
    nbformat: Any = importlib.import_module("nbformat")
    nbclient: Any = importlib.import_module("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=None, startup_timeout=600, kernel_name="python3").execute()
    text = "".join(output["text"] for cell in notebook.cells for output in cell.get("outputs", []) if output["output_type"] == "stream")
    assert "step   1: loss" in text and "times less" in text, text
