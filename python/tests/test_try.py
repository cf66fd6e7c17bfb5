# SPDX-License-Identifier: Apache-2.0
"""`python -m sluice.try` runs a script that knows nothing of Sluice."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess
import sys

from conftest import RANKS

SCRIPT = str(RANKS / "plain.py")


def run(*words: str, **variables: str) -> str:
    """Returns what the command prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def sha256_of(folder: pathlib.Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.iterdir())]


def test_two_ranks_under_torchrun(tmp_path: pathlib.Path) -> None:
    text = run("torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "sluice.try", "--uplink", "int4", SCRIPT, str(tmp_path))
    assert text.count("sluice: in 20 steps, rank 0 sent ") == 1, text
    assert text.count("sluice: INFO an exchange sends ") == 1, text
    assert "(uplink int4, downlink int8)" in text
    dense = 20 * 4 * (300 * 40 + 40) / 1024
    found = re.search(r"DDP would have sent and received ([\d.]+) KiB: ([\d.]+)x and ([\d.]+)x as much", text)
    assert found is not None, text
    # On two ranks, a ring all-reduce sends as much as the gradients have.
    assert abs(float(found[1]) - dense) < 0.1
    assert 6 < float(found[2]) < 8
    assert 3.5 < float(found[3]) < 4
    assert "sluice: the script waited " in text
    hashes = sha256_of(tmp_path)
    assert len(hashes) == 2
    assert hashes[0] == hashes[1]


def test_a_process_that_is_alone(tmp_path: pathlib.Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    text = run("sluice.try", "--uplink", "topk:1%+int4", SCRIPT, str(tmp_path), **address)
    assert "this process is alone; with other ranks, it would have sent" in text, text
    assert len(sha256_of(tmp_path)) == 1


def test_a_script_without_ddp(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nassert __name__ == '__main__' and sys.argv[1:] == ['--uplink', 'x'] and sys.path[0] == sys.argv[0][:-10]\n")
    assert "the script created no DistributedDataParallel" in run("sluice.try", str(script), "--uplink", "x")
