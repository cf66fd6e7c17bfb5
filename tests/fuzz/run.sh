#!/usr/bin/env bash
# tests/fuzz/run.sh SECONDS [NAME...]: each fuzzer (or those named) for so long, one after the other. What it finds it leaves in
# build/fuzz; put a finding into tests/fuzz/corpus/NAME as soon as it is fixed, so that it stays so.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?how many seconds for each}
shift
names=("$@")
if [ ${#names[@]} = 0 ]; then names=(frame sum round_trip instruction_set receiver spec snapshot); fi
cd build/fuzz
for name in "${names[@]}"; do
  mkdir -p "corpus/$name"
  echo "== $name"
  bin/"${name}_fuzz" -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -dict=../../tests/fuzz/specs.dict "corpus/$name" "../../tests/fuzz/corpus/$name"
done
