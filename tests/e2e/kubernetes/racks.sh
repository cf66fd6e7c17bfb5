# SPDX-License-Identifier: Apache-2.0
# Two racks of two workers behind relays: an undisturbed run and a disturbed one end with the same parameters.

racks=(--set "worker.replicaCount=4,relay.enabled=true,relay.racks[0].workers=2,relay.racks[1].workers=2,relay.persistence.size=1Gi"
  --set "relay.resources.requests.cpu=50m,relay.resources.requests.memory=64Mi,job.relays.uplink=int8,job.steps=$((steps / 2))")
both_relays_ready() { k wait --for=condition=Ready --timeout=2s "pod/$1-sluice-relay-0-0" "pod/$1-sluice-relay-1-0" >/dev/null 2>&1; }
uids_of_racks() { k get job racks-sluice-worker-0 racks-sluice-worker-1 -o jsonpath='{.items[*].metadata.uid} {.items[*].metadata.generation}'; }
install calm-racks "${racks[@]}" --set server.persistence.enabled=false,relay.persistence.enabled=false
complete calm-racks
calm_racks=$(hashes calm-racks)
[ "$(wc -w <<<"$calm_racks")" = 1 ] || fail "the workers of two racks ended with other parameters: $calm_racks"
h uninstall calm-racks --wait >/dev/null
say "two racks, undisturbed: $calm_racks"
install racks "${racks[@]}"
await 240 "both relays are ready" both_relays_ready racks
jobs_before=$(uids_of_racks)
await 120 "the first checkpoint" past_step racks 100
k delete pod racks-sluice-relay-1-0 >/dev/null
await 240 "a deleted relay is ready again" both_relays_ready racks
say "a deleted relay is back at step $(metric racks 0 sluice_step)"
k delete "$(k get pod -l app.kubernetes.io/instance=racks,sluice.dev/rack=0,batch.kubernetes.io/job-completion-index=1 -o name)" >/dev/null
k get --raw "/api/v1/namespaces/$ns/pods/https:racks-sluice-relay-1-0:7071/proxy/metrics" | grep -q 'training_job="fashion/rack-1"' ||
  fail "the relay's metrics are not named after its rack"
h upgrade racks $chart --reuse-values --set server.image.tag="$version-next" --set-string worker.podAnnotations.other=yes --wait --timeout 240s >/dev/null
[ "$jobs_before" = "$(uids_of_racks)" ] || fail "the upgrade touched the racks' Jobs"
[ "$(k get pod racks-sluice-relay-0-0 -o jsonpath='{.spec.containers[0].image}')" = "localhost/sluice-server:$version-next" ] ||
  fail "the upgrade did not reach the relays"
say "a deleted worker, and an upgrade of shards and relays, at step $(metric racks 0 sluice_step)"
runs_still racks || fail "the run had ended before all of that: raise STEPS"
complete racks
[ "$(hashes racks)" = "$calm_racks" ] || fail "racks, disturbed: $(hashes racks), undisturbed: $calm_racks"
k delete pod racks-sluice-relay-0-0 --wait >/dev/null
await 120 "a relay that begins after the end is ready" both_relays_ready racks
h test racks --logs >"$work/test.log" 2>&1 || fail "helm test: $(tail -n 20 "$work/test.log")"
k delete pod racks-sluice-test --wait >/dev/null  # Helm leaves it, so that its log can be read.
h uninstall racks --wait >/dev/null
await 60 "nothing is left of an uninstalled release with racks" gone racks
say "two racks, disturbed: the same parameters"
