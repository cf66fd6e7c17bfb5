#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that clang-format 14 would not change any C++ file and that every script parses. `--fix` rewrites the files.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
mapfile -t scripts < <(git ls-files '*.sh' '.ci/*')
if [ "${1:-}" = --fix ]; then clang-format-14 -i "${sources[@]}"; exit; fi
clang-format-14 --dry-run -Werror "${sources[@]}"
for script in "${scripts[@]}"; do bash -n "$script"; done
echo "${#sources[@]} sources are formatted, ${#scripts[@]} scripts parse"
