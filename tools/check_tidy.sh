#!/usr/bin/env bash
# clang-tidy 14 and clang's thread annotations over our sources: tools/check_tidy.sh BUILD_FOLDER [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/check_tidy.sh BUILD_FOLDER [FILE...]}
shift
if [ $# = 0 ]; then
  # Tests and benchmarks are compiled with every warning but not analysed: GoogleTest's macros cost minutes.
  mapfile -t files < <(git ls-files '*.cc' | grep -vE '^(tests|bench)/')
else
  files=("$@")
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 4 -P "$(nproc)" clang-tidy-14 -p "$build" --quiet \
  --extra-arg=-Wthread-safety --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-attributes 2>&1 |
  { grep -vE '^[0-9]+ warnings? (generated|treated)|^$' || true; }
echo "${#files[@]} files are tidy"
