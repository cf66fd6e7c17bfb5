# SPDX-License-Identifier: Apache-2.0
# A wrong job is refused, an undisturbed run ends, and its shards are idle afterwards. Sets `calm` to the hash of its parameters.

# The pod must report what is wrong with a job before any process waits for the job.
install bad --set job.compression.uplink=topq:1%,server.persistence.enabled=false
reason() { k get pod bad-sluice-server-0 -o jsonpath='{.status.initContainerStatuses[0].lastState.terminated.message}' | grep -q topq; }
await 60 "the reason why a job is refused" reason
h uninstall bad --wait >/dev/null
say "an unknown codec is refused by name"

install calm
ready calm
complete calm
calm=$(hashes calm)
[ "$(wc -w <<<"$calm")" = 1 ] || fail "the workers of an undisturbed run ended with other parameters: $calm"
say "undisturbed: $calm"
ticks() { k exec "calm-sluice-server-$1" -c server -- cat /proc/1/stat | awk '{print $14 + $15}'; }
for shard in 0 1; do
  before=$(ticks $shard); sleep 10; after=$(ticks $shard)
  [ $((after - before)) -le 10 ] || fail "shard $shard takes $((after - before)) hundredths of a second in 10 s when all is done"
done
[ "$(k get job calm-sluice-worker -o jsonpath='{.status.succeeded}')" = 3 ] || fail "not all workers succeeded"
k delete pod calm-sluice-server-1 --wait >/dev/null
ready calm
h test calm --logs >"$work/test.log" 2>&1 || fail "helm test: $(tail -n 20 "$work/test.log")"
say "at the end shards are idle, come back, and helm test passes"
h uninstall calm --wait >/dev/null
