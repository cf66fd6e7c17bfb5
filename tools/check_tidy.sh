#!/usr/bin/env bash
# clang-tidy 14 and clang's thread annotations over our sources (not the tests: GoogleTest's macros cost minutes).
# usage: tools/check_tidy.sh [--analyze] [--seconds N] [FILE...]
#   --analyze     clang's static analyzer too, twice the time
#   --seconds N   begin with no more files after so long; those changed last come first
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
  # By their newest commit, then by name; a file that was removed since is in the first list alone.
  mapfile -t files < <({ git log -n 300 --format= --name-only; git ls-files; } | awk '/\.cc$/ && !/^(tests\/|bench\/[^\/]*$)/ && !seen[$0]++' |
    while read -r file; do [ ! -e "$file" ] || echo "$file"; done)
else
  files=("$@")
fi
# A build folder of its own: clang cannot read GCC's precompiled headers.
cmake --preset release -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DSLUICE_TESTS=OFF -DSLUICE_BENCH=OFF >/dev/null
cmake --build build/tidy --target sluice_proto_sources >/dev/null
# Tells what it finds, or, past the deadline, what it was not to begin with.
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
[ "$left" = 0 ] || echo "no time left for $left of ${#files[@]}, changed longest ago: tools/check_tidy.sh takes them all"
echo "$((${#files[@]} - left)) files are tidy"
