#!/usr/bin/env bash
# Compressed against dense training, in pairs of equal seeds and steps. About two minutes a pair on two cores.
# usage: bench/accuracy.sh [SEEDS] [sluice run arguments...]      (default: 5 seeds of examples/fashion-mnist.yaml)
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=${1:-5}
[ $# -gt 0 ] && shift
sluice=build/release/bin/sluice
[ -x "$sluice" ] || scripts/build.sh release sluice sluice-server sluice-worker
out=build/accuracy
mkdir -p "$out" && rm -f "$out"/*.json
for seed in $(seq 1 "$seeds"); do
  for kind in dense compressed; do
    flags=(--set "seed=$seed" --quiet --json "$out/$kind-$seed.json")
    [ "$kind" = dense ] && flags+=(--dense)
    "$sluice" run examples/fashion-mnist.yaml "${flags[@]}" "$@" >"$out/$kind-$seed.log" 2>&1 ||
      { tail -20 "$out/$kind-$seed.log" >&2; exit 1; }
  done
  python3 bench/accuracy_report.py "$out" --last
done
python3 bench/accuracy_report.py "$out"
