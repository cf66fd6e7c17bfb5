#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package as a user does, into a new virtual environment, and runs its tests with PyTorch from .deps/python.
# usage: scripts/test-python.sh [--frameworks] [PYTEST ARGUMENTS]
#   --frameworks also installs Lightning, Accelerate, Transformers and what runs a notebook (75 MB), without which their tests are skipped
set -euo pipefail
cd "$(dirname "$0")/.."
frameworks=no
if [ "${1:-}" = --frameworks ]; then frameworks=yes; shift; fi
scripts/setup.sh --python
# ccache finds object files again, also those of the release preset, if the compiler has the same name.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 SLUICE_COMPILER_LAUNCHER=ccache CXX=c++
venv=build/python-venv
rm -rf "$venv"
/usr/bin/python3 -m venv "$venv"
# The environment uses PyTorch and pytest from .deps/python, because a copy would take 5 GB.
"$PWD/.deps/python/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' \
  >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch.pth"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check .
if [ "$frameworks" = yes ]; then
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --requirement scripts/framework-wheels.txt
fi
# Without a package index, the tests that need them are skipped.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
  --requirement scripts/test-wheels.txt || echo "test-python: no basedpyright and no safetensors" >&2
"$venv/bin/python" -m pytest -q "$@"
