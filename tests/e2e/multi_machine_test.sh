#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests docs/multi-machine.md: two hosts made of network namespaces, with one shard and one worker on each.
# usage: multi_machine_test.sh BIN JOB.yaml     exits with 77 (skipped) if namespaces cannot be made
set -euo pipefail
bin=$1 job=$2
a=sluice-a-$$ b=sluice-b-$$
pids=()
work=$(mktemp -d)

clean_up() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null &&
  ip -n "$a" link add veth0 type veth peer name veth0 netns "$b" 2>/dev/null ||
  { echo "network namespaces cannot be made here: skipped"; exit 77; }
ip -n "$a" addr add 10.77.0.1/24 dev veth0
ip -n "$b" addr add 10.77.0.2/24 dev veth0
for host in "$a" "$b"; do ip -n "$host" link set lo up; ip -n "$host" link set veth0 up; done

on() {  # on HOST LOG PROGRAM ARGS...
  local host=$1 log=$2
  shift 2
  ip netns exec "$host" timeout 90 "$@" >"$work/$log.log" 2>&1 &
  pids+=($!)
}
on "$a" shard-0 "$bin/sluice-server" --job "$job" --shard 0 --listen 10.77.0.1:7070 --http-listen 10.77.0.1:7071 \
  --allow-anonymous
on "$b" shard-1 "$bin/sluice-server" --job "$job" --shard 1 --listen 10.77.0.2:7070 --coordinator 10.77.0.1:7070 \
  --allow-anonymous
on "$a" worker-0 "$bin/sluice-worker" --job "$job" --coordinator 10.77.0.1:7070 --rank 0 --report "$work/0.json"
RANK=1 WORLD_SIZE=2 on "$b" worker-1 "$bin/sluice-worker" --job "$job" --coordinator 10.77.0.1:7070 --report "$work/1.json"

failed=0
for i in 0 1 2 3; do wait "${pids[$i]}" || failed=1; done
if [ "$failed" = 1 ]; then tail -n 20 "$work"/*.log; exit 1; fi
python3 - "$work" <<'PY'
import json, pathlib, sys
reports = [json.loads((pathlib.Path(sys.argv[1]) / f"{rank}.json").read_text()) for rank in (0, 1)]
assert reports[0]["parameters_sha256"] == reports[1]["parameters_sha256"] != "", reports
assert reports[0]["steps"] > 0, reports
print(f"two hosts, {reports[0]['steps']} steps, equal parameters {reports[0]['parameters_sha256'][:12]}")
PY
