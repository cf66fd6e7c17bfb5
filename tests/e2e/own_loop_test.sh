#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs examples/own_loop.cc as its comment describes: one server, two ranks, and equal parameters at the end.
# usage: own_loop_test.sh BIN JOB.yaml
set -euo pipefail
bin=$1 job=$2
work=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
timeout 90 "$bin/sluice-server" --job "$job" --listen "127.0.0.1:$port" --http-listen off >"$work/server.log" 2>&1 &
pids+=($!)
for rank in 0 1; do
  timeout 90 "$bin/own_loop" "$job" "127.0.0.1:$port" "$rank" >"$work/$rank.log" 2>&1 &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
hashes=$(grep -h '^parameters ' "$work/0.log" "$work/1.log" | sort -u | wc -l)
if [ "$failed" = 1 ] || [ "$hashes" != 1 ] || [ "$(grep -c '^parameters ' "$work/1.log")" != 1 ]; then
  tail -n 20 "$work"/*.log
  exit 1
fi
tail -n 2 "$work/0.log"
