#!/usr/bin/env bash
# clang-tidy 14 and clang's thread annotations over our sources (not the tests: GoogleTest's macros cost minutes).
# usage: tools/check_tidy.sh [--analyze] [FILE...]     --analyze: clang's static analyzer too, twice the time
set -euo pipefail
cd "$(dirname "$0")/.."
checks=-clang-analyzer-*
if [ "${1:-}" = --analyze ]; then checks=""; shift; fi
if [ $# = 0 ]; then
  mapfile -t files < <(git ls-files '*.cc' | grep -vE '^(tests|bench)/')
else
  files=("$@")
fi
# A build folder of its own: clang cannot read GCC's precompiled headers.
cmake --preset release -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DSLUICE_TESTS=OFF -DSLUICE_BENCH=OFF >/dev/null
cmake --build build/tidy --target sluice_proto_sources >/dev/null
printf '%s\0' "${files[@]}" | xargs -0 -n 2 -P "$(nproc)" clang-tidy-14 -p build/tidy --quiet --checks="$checks" \
  --extra-arg=-Wthread-safety --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-attributes 2>&1 |
  { grep -vE '^[0-9]+ warnings? (generated|treated)|^$' || true; }
echo "${#files[@]} files are tidy"
