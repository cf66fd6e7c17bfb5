#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/run.sh SECONDS [NAME...]: runs each fuzzer (or the named ones) for this time, one after
# another. Findings are in build/fuzz. When a finding has been fixed, add it to
# tests/fuzz/corpus/NAME. Inputs called covers_* reach code that the seeds do not. To choose those of a
# run, merge build/fuzz/corpus/NAME into a copy of that folder with -set_cover_merge=1 -use_counters=0.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?how many seconds for each}
shift
names=("$@")
if [ ${#names[@]} = 0 ]; then
  names=(frame sum round_trip instruction_set receiver spec snapshot job_file http checkpoint handler patch safetensors)
fi
cd build/fuzz
for name in "${names[@]}"; do
  mkdir -p "corpus/$name"
  echo "== $name"
  bin/"${name}_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -dict=../../tests/fuzz/specs.dict "corpus/$name" "../../tests/fuzz/corpus/$name"
done
