# SPDX-License-Identifier: Apache-2.0
# The number of shards of a running job rises and falls, as docs/kubernetes.md describes under "Upgrades". The run ends with the parameters of
# undisturbed.sh.

: "${calm:?run the case undisturbed before this one}"
continued_after() {  # continued_after TEXT: prints the step of the log line of shard 0 that contains TEXT
  k logs shards-sluice-server-0 -c server | sed -n "s/.*$1 after step \([0-9]*\).*/\1/p" | tail -n 1
}
install shards
ready shards
await 120 "the first checkpoint" saved shards 100
if h upgrade shards $chart --reuse-values --set server.replicaCount=3 >"$work/refused" 2>&1; then
  fail "another number of shards under running workers was not refused"
fi
grep -q "job.shards cannot change while the job runs" "$work/refused" || fail "the refusal says: $(cat "$work/refused")"

restart_all shards --reuse-values --set server.replicaCount=3
await 240 "the job continues with 3 shards" says shards "the run had 2 shards and continues with 3 after step"
continued=$(continued_after "continues with 3")
ready shards 3
say "from 2 shards to 3 after step $continued"
await 240 "a checkpoint of 3 shards" saved shards $((continued + 1))
runs_still shards || fail "the run had ended before the number of shards fell: raise STEPS"

k delete job -l app.kubernetes.io/instance=shards --cascade=foreground --timeout=120s >/dev/null
for shard in 1 2; do
  k exec "shards-sluice-server-$shard" -c server -- tar -cC /var/lib/sluice "shard-$shard" |
    k exec -i shards-sluice-server-0 -c server -- tar -xC /var/lib/sluice
done
restart_all shards --reuse-values --set server.replicaCount=1
await 240 "the job continues with 1 shard" says shards "the run had 3 shards and continues with 1 after step"
ready shards 1
say "from 3 shards to 1 after step $(continued_after "continues with 1")"
shards_of_release() { k get pod -l app.kubernetes.io/instance=shards,app.kubernetes.io/component=server -o name; }
[ "$(shards_of_release)" = pod/shards-sluice-server-0 ] || fail "shards besides shard 0 are still there: $(shards_of_release)"
complete shards
[ "$(hashes shards)" = "$calm" ] || fail "with other numbers of shards: $(hashes shards), undisturbed: $calm"
h uninstall shards --wait >/dev/null
await 60 "nothing is left of an uninstalled release that had more shards" gone shards
say "other numbers of shards: the same parameters"
