#!/usr/bin/env bash
# Every C++ and proto file as clang-format 14 writes it, every script parses. `--fix` rewrites instead.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
mapfile -t scripts < <(git ls-files '*.sh' '.ci/*')
if [ "${1:-}" = --fix ]; then clang-format-14 -i "${sources[@]}"; exit; fi
clang-format-14 --dry-run -Werror "${sources[@]}"
for script in "${scripts[@]}"; do bash -n "$script"; done
echo "${#sources[@]} sources are formatted, ${#scripts[@]} scripts parse"
