#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up the machine and builds one preset: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
if [ "$preset" = cuda ]; then scripts/setup.sh --cuda; else scripts/setup.sh; fi
# Lets ccache find object files again in whichever folder the checkout is.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
mkdir -p build
# A first build compiles everything, so it compiles several sources at once. Later builds keep their configuration.
unity=(); [ -e "build/$preset/CMakeCache.txt" ] || unity=(-DSLUICE_UNITY=ON)
cmake --preset "$preset" "${unity[@]}" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; exit 1; }
cmake --build --preset "$preset" ${1:+--target "$@"}
