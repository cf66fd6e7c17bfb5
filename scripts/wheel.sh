#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel of the Python package for other machines: its module and programs contain all libraries but glibc and libstdc++,
# with gRPC of .deps/grpc. The tools come from scripts/wheel-wheels.txt into .deps/wheel. Called by scripts/release.sh.
#
# usage: SOURCE_DATE_EPOCH=SECONDS scripts/wheel.sh DIR [--arch aarch64]
# The version is that of pyproject.toml. --arch aarch64 compiles for ARM on x86-64, with gRPC of .deps/grpc-aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."
usage="usage: scripts/wheel.sh DIR [--arch aarch64]"
out=$(realpath -m "${1:?$usage}")
arch=$(uname -m) suffix='' cross=()
case "${*:2}" in
  "" | "--arch $arch") ;;
  "--arch aarch64") arch=aarch64 suffix=-aarch64 ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
root=$PWD/.deps/wheel wheels=scripts/wheel-wheels.txt build=$PWD/build/wheel$suffix
say() { printf 'wheel: %s\n' "$*"; }

scripts/setup.sh --grpc --arch "$arch"
if ! cmp -s "$wheels" "$root/stamp"; then
  say "fetching scikit-build-core, nanobind and CMake (30 MB)"
  rm -rf "$root"
  /usr/bin/python3 -m venv "$root"
  "$root/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --requirement "$wheels"
  cp "$wheels" "$root/stamp"
fi

# What the files need is checked below.
tag=manylinux_2_35_$arch
say "building for $arch"
mkdir -p "$out" build
# ccache finds the objects of the release's programs again.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 SLUICE_COMPILER_LAUNCHER=ccache CXX=c++
if [ -n "$suffix" ]; then
  # CMake runs this machine's Python, and would take its headers and look for nanobind among ARM's packages.
  for define in "CMAKE_TOOLCHAIN_FILE=$PWD/cmake/$arch.cmake" "Python_INCLUDE_DIR=$PWD/.deps/arm64/usr/include/python3.11" \
    "nanobind_DIR=$("$root/bin/python" -m nanobind --cmake_dir)"; do
    cross+=("--config-settings=cmake.define.$define")
  done
fi
PATH=$root/bin:$PATH _PYTHON_HOST_PLATFORM=$tag "$root/bin/python" -m pip wheel --disable-pip-version-check --no-deps --no-index \
  --no-build-isolation --wheel-dir "$out" --config-settings=build-dir="$build" \
  --config-settings=cmake.define.SLUICE_GRPC_PREFIX="$PWD/.deps/grpc$suffix" "${cross[@]}" . >"$build.log" 2>&1 ||
  { tail -n 50 "$build.log" >&2; exit 1; }
tools/check_wheel.py "$out"/sluice_train-*-"$tag.whl"
