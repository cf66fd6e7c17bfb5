#!/usr/bin/env bash
# Sets the machine up and builds one preset: scripts/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
if [ "$preset" = cuda ]; then scripts/setup.sh --cuda; else scripts/setup.sh; fi
# Object files are found again by ccache whichever folder the checkout is in.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
mkdir -p build
# A first build has everything before it, so it compiles several sources at once; later ones stay as they were configured.
unity=(); [ -e "build/$preset/CMakeCache.txt" ] || unity=(-DSLUICE_UNITY=ON)
cmake --preset "$preset" "${unity[@]}" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; exit 1; }
cmake --build --preset "$preset" ${1:+--target "$@"}
