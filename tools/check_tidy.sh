#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy 14 and clang's thread annotations over our sources: not the tests, because GoogleTest's macros cost
# minutes, and not the Python module, because pip brings nanobind's headers.
# usage: tools/check_tidy.sh [--analyze] [--seconds N] [FILE...]
#   --analyze     also runs clang's static analyzer; takes twice the time
#   --seconds N   starts no more files after N seconds; those changed last come first
set -euo pipefail
cd "$(dirname "$0")/.."
export checks=-clang-analyzer-* deadline=0
while :; do
  case "${1:-}" in
    --analyze) checks=""; shift ;;
    --seconds) deadline=$((SECONDS + ${2:?how many seconds?})); shift 2 ;;
    *) break ;;
  esac
done
if [ $# = 0 ]; then
  # Sorted by newest commit, then by name. Only the first list has files that were removed since.
  mapfile -t files < <({ git log -n 300 --format= --name-only; git ls-files; } | awk '/\.cc$/ && !/^(tests\/|python\/|bench\/[^\/]*$)/ && !seen[$0]++' |
    while read -r file; do [ ! -e "$file" ] || echo "$file"; done)
else
  files=("$@")
fi
# A separate build folder, because clang cannot read GCC's precompiled headers.
cmake --preset release -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DSLUICE_TESTS=OFF -DSLUICE_BENCH=OFF >/dev/null
cmake --build build/tidy --target sluice_proto_sources >/dev/null
# Prints findings. Past the deadline, lists its files as left out instead of checking them.
export started=$(($(date +%s) - SECONDS))
check() {
  if [ "$deadline" != 0 ] && [ $(($(date +%s) - started)) -ge "$deadline" ]; then printf '%s\n' "$@" >>build/tidy/left; return; fi
  clang-tidy-14 -p build/tidy --quiet --checks="$checks" \
    --extra-arg=-Wthread-safety --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-attributes "$@" 2>&1
}
export -f check
: >build/tidy/left
printf '%s\0' "${files[@]}" | xargs -0 -n 2 -P "$(nproc)" bash -c 'check "$@"' check |
  { grep -vE '^[0-9]+ warnings? (generated|treated)|^$' || true; }
left=$(wc -l <build/tidy/left)
[ "$left" = 0 ] || echo "no time left for $left of ${#files[@]}, those changed longest ago: tools/check_tidy.sh checks all"
echo "$((${#files[@]} - left)) files are tidy"
