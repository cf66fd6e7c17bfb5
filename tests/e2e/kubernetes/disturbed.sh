# SPDX-License-Identifier: Apache-2.0
# The same run as that of undisturbed.sh, while pods are deleted, a node is drained, and the release is upgraded and rolled back, ends with the
# same parameters.

: "${calm:?run the case undisturbed before this one}"
install rough
ready rough
job_before=$(k get job rough-sluice-worker -o jsonpath='{.metadata.uid} {.metadata.generation}')
await 120 "the first checkpoint" past_step rough 100
k delete pod rough-sluice-server-1 >/dev/null
ready rough
say "a deleted shard is back at step $(metric rough 0 sluice_step)"
k delete "$(k get pod -l app.kubernetes.io/instance=rough,batch.kubernetes.io/job-completion-index=0 -o name)" >/dev/null
k delete pod rough-sluice-server-0 --grace-period=0 --force >/dev/null 2>&1
ready rough
say "a deleted worker and a killed coordinator are back at step $(metric rough 0 sluice_step)"

node=$(k get pod rough-sluice-server-1 -o jsonpath='{.spec.nodeName}')
k drain "$node" --pod-selector=app.kubernetes.io/instance=rough,apps.kubernetes.io/pod-index=1 --delete-emptydir-data --timeout=90s >/dev/null
k drain "$node" --pod-selector=app.kubernetes.io/instance=rough,batch.kubernetes.io/job-completion-index=2 --delete-emptydir-data --timeout=90s >/dev/null
k uncordon "$node" >/dev/null
ready rough
say "evicted by a drain, back at step $(metric rough 0 sluice_step)"

h upgrade rough $chart --values "$work/values.yaml" --set tls.existingSecret=rough-tls,auth.existingSecret=rough-token \
  --set server.image.tag="$version-next",server.resources.requests.cpu=60m,worker.image.tag=other --wait --timeout 180s >/dev/null
[ "$(k get pod -l app.kubernetes.io/instance=rough,app.kubernetes.io/component=server -o jsonpath='{.items[*].spec.containers[0].image}')" = \
  "localhost/sluice-server:$version-next localhost/sluice-server:$version-next" ] || fail "the upgrade did not reach the shards"
[ "$job_before" = "$(k get job rough-sluice-worker -o jsonpath='{.metadata.uid} {.metadata.generation}')" ] || fail "the upgrade touched the workers' Job"
say "upgraded one shard after the other, at step $(metric rough 0 sluice_step)"
if h upgrade rough $chart --reuse-values --set job.optimizer.lr=0.2 >"$work/refused" 2>&1; then fail "another job under running workers was not refused"; fi
grep -q "job.optimizer cannot change while the job runs" "$work/refused" || fail "the refusal says: $(cat "$work/refused")"
h rollback rough 1 --wait --timeout 180s >/dev/null
say "rolled back, at step $(metric rough 0 sluice_step)"
[ "$(metric rough 0 sluice_rollbacks_total)" = 0 ] || say "the job went back to a checkpoint $(metric rough 0 sluice_rollbacks_total) times"
runs_still rough || fail "the run had ended before all of that: raise STEPS"
complete rough
rough=$(hashes rough)
[ "$rough" = "$calm" ] || fail "disturbed: $rough, undisturbed: $calm"
say "disturbed: the same parameters"
h uninstall rough --wait >/dev/null
await 60 "nothing is left of an uninstalled release" gone rough
say "uninstalled, nothing is left"
