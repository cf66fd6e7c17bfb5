# SPDX-License-Identifier: Apache-2.0
"""The hand-over of gradients on a GPU: gpu_check.py with a real one if there is one, and with tensors of the host."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch


def _check(*arguments: str) -> None:
    script = pathlib.Path(__file__).parent / "gpu_check.py"
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that PyTorch can use")
def test_a_gpu_trains_as_with_blocking_copies() -> None:
    _check()


def test_a_pretended_device_trains_as_with_blocking_copies() -> None:
    _check("--cpu")
