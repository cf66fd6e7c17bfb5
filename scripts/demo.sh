#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a CNN on Fashion-MNIST with 4 workers and 2 server shards on this machine and sends about a hundredth of the
# bytes. Then shows the gain on a slow link. usage: scripts/demo.sh [--no-link]
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in "" | --no-link) ;; *) sed -n '3,4s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
scripts/build.sh release sluice sluice-server sluice-worker
sluice=build/release/bin/sluice
out=build/demo
mkdir -p "$out"

echo
echo "== 1. Train: 4 workers, 2 shards, top-k 1 % up and 3 % down =="
"$sluice" run examples/fashion-mnist.yaml --report "$out/compressed.json"

if [ "${1:-}" != --no-link ]; then
  echo
  echo "== 2. The same model for 60 steps with every process on a 100 Mbit/s link: dense fp16, then compressed =="
  short=(--set steps=60 --set lr_schedule.name=constant --set data.test_limit=1000 --link-rate 100mbit --quiet)
  "$sluice" run examples/fashion-mnist.yaml "${short[@]}" --report "$out/link-fp16.json" \
    --set compression.uplink=fp16 --set compression.downlink=fp16
  "$sluice" run examples/fashion-mnist.yaml "${short[@]}" --report "$out/link-compressed.json"
fi

echo
python3 scripts/demo_summary.py "$out"
