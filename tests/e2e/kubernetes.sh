#!/usr/bin/env bash
# Tests the chart on a real cluster, in a namespace that enforces the `restricted` Pod Security profile and has a ResourceQuota, with TLS
# and token. Trains Fashion-MNIST with 2 shards and 3 workers, once undisturbed and once while pods are deleted, a node is drained, and the
# release is upgraded and rolled back. Both must end with the same parameters. Then repeats this with two racks of two workers behind relays.
#
# usage: tests/e2e/kubernetes.sh IMAGES      IMAGES: folder that deploy/docker/build.sh wrote
# The cluster is one of these:
#   KUBECONFIG=...       any cluster; LOAD="kind load image-archive" is the command for each image's archive
#   CLUSTER=PROGRAM      a program with the commands `up`, `exec COMMAND...` and `load ARCHIVE...`
# STEPS=2000             length of the training, if the cluster is fast
set -euo pipefail
images=$(cd "${1:?$(sed -n '6s/^# //p' "$0")}" && pwd)
cd "$(dirname "$0")/../.."

say() { printf 'kubernetes: %6.1f s: %s\n' "$(($(date +%s%N) / 100000000 - started))e-1" "$*"; }
started=$(($(date +%s%N) / 100000000))
if [ -n "${CLUSTER:-}" ]; then
  "$CLUSTER" up >/dev/null
  on=("$CLUSTER" exec)
  load=("$CLUSTER" load)
elif [ -n "${KUBECONFIG:-}" ]; then
  on=()
  read -ra load <<<"${LOAD:?how images get into that cluster, such as LOAD=\"kind load image-archive\"}"
else
  echo "kubernetes: neither KUBECONFIG nor CLUSTER is set: skipped"; exit 77
fi

version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
chart=helm/sluice
ns=sluice-e2e
steps=${STEPS:-2000}
work=$(mktemp -d)
k() { "${on[@]}" kubectl --namespace $ns "$@"; }
h() { "${on[@]}" helm --namespace $ns "$@"; }
fail() {
  say "FAILED: $*"
  k get pods,jobs,pvc -o wide || true
  k get events --sort-by=.lastTimestamp | tail -n 30 || true
  for pod in $(k get pods -o name); do echo "--- $pod"; k logs --all-containers --prefix --tail=25 "$pod" || true; done
  exit 1
}
clean_up() {
  "${on[@]}" kubectl uncordon --all >/dev/null 2>&1 || true
  [ -n "${KEEP:-}" ] || "${on[@]}" kubectl delete namespace $ns --wait=false >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'fail "line $LINENO"' ERR

"${load[@]}" "$images"/sluice-server.tar "$images"/sluice-worker.tar "$images"/sluice-next.tar "$images"/sluice-fashion.tar
say "images are there"

"${on[@]}" kubectl delete namespace $ns --ignore-not-found --timeout=120s >/dev/null
k create namespace $ns >/dev/null
k label namespace $ns pod-security.kubernetes.io/enforce=restricted >/dev/null
k create quota quota --hard=requests.cpu=8,requests.memory=12Gi,limits.memory=24Gi,pods=30 >/dev/null

# One CA, and one certificate per release for the names of its servers.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=test CA" -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
secrets() {  # secrets RELEASE
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$work/tls.key" -out "$work/tls.csr" 2>/dev/null
  echo "subjectAltName = DNS:*.$1-sluice-server.$ns.svc, DNS:*.$1-sluice-relay.$ns.svc" >"$work/tls.ext"
  openssl x509 -req -in "$work/tls.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 -extfile "$work/tls.ext" -out "$work/tls.pem" 2>/dev/null
  k create secret generic "$1-tls" --from-file=tls.crt="$work/tls.pem" --from-file=tls.key="$work/tls.key" --from-file=ca.crt="$work/ca.pem" >/dev/null
  k create secret generic "$1-token" --from-literal=token="$(openssl rand -hex 32)" >/dev/null
}

cat >"$work/values.yaml" <<YAML
server:
  replicaCount: 2
  image: {repository: localhost/sluice-server, tag: "$version"}
  resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 1Gi}}
  persistence: {size: 1Gi}
worker:
  replicaCount: 3
  image: {repository: localhost/sluice-fashion, tag: "$version"}
  resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {memory: 2Gi}}
tls: {enabled: true}
tests: {resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {memory: 2Gi}}}
job:
  name: fashion
  model: {name: simple_cnn}
  data:
    format: idx
    path: /data
    train_images: train-images-idx3-ubyte.gz
    train_labels: train-labels-idx1-ubyte.gz
    test_images: t10k-images-idx3-ubyte.gz
    test_labels: t10k-labels-idx1-ubyte.gz
    limit: 6000
    test_limit: 500
  batch_size_per_worker: 8
  steps: $steps
  optimizer: {lr: 0.1, momentum: 0.5, clip_norm: 1}
  compression: {uplink: "topk:5%+int4", downlink: int8}
  checkpoint: {interval: 100}
  server: {lease_timeout: 5s, heartbeat_interval: 500ms}
YAML
install() {  # install RELEASE ARGUMENTS...
  local release=$1
  shift
  secrets "$release"
  h install "$release" $chart --values "$work/values.yaml" --set tls.existingSecret="$release-tls",auth.existingSecret="$release-token" "$@" >"$work/notes"
}
complete() {  # complete RELEASE [RACK...]
  local release=$1 jobs=()
  shift
  for rack in "$@"; do jobs+=("job/$release-sluice-worker-$rack"); done
  [ $# -gt 0 ] || jobs=("job/$release-sluice-worker")
  k wait --for=condition=Complete --timeout=900s "${jobs[@]}" >/dev/null
}
hashes() { k logs -l "app.kubernetes.io/instance=$1,app.kubernetes.io/component=worker" --tail=-1 | sed -n "s/.*parameters' sha256 //p" | sort -u; }
metric() {  # metric RELEASE SHARD NAME
  k get --raw "/api/v1/namespaces/$ns/pods/https:$1-sluice-server-$2:7071/proxy/metrics" | sed -n "s/^$3\({[^}]*}\)\{0,1\} //p" | head -n 1
}
await() {  # await SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do [ $SECONDS -lt $end ] || fail "waited in vain: $what"; sleep 0.5; done
}
both_ready() { k wait --for=condition=Ready --timeout=2s "pod/$1-sluice-server-0" "pod/$1-sluice-server-1" >/dev/null 2>&1; }
ready() { await 240 "both shards of $1 are ready" both_ready "$1"; }
past_step() { local step; step=$(metric "$1" 0 sluice_step || true); [ "${step%.*}" -ge "$2" ] 2>/dev/null; }

# The pod must report what is wrong with a job before any process waits for the job.
install bad --set job.compression.uplink=topq:1%
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
[ -z "$(k get job rough-sluice-worker -o jsonpath='{.status.completionTime}')" ] || fail "the run had ended before all of that: raise STEPS"
complete rough
rough=$(hashes rough)
[ "$rough" = "$calm" ] || fail "disturbed: $rough, undisturbed: $calm"
say "disturbed: the same parameters"
h uninstall rough --wait >/dev/null
gone() { [ -z "$(k get all,configmaps,pvc,pdb,networkpolicies,serviceaccounts -l "app.kubernetes.io/instance=$1" -o name)" ]; }
await 60 "nothing is left of an uninstalled release" gone rough
say "uninstalled, nothing is left"

# Changes the job file of a running job as docs/kubernetes.md describes, and later checks what remains of finished
# workers.
install changed --set worker.replicaCount=2,worker.ttlSecondsAfterFinished=30,job.checkpoint.interval=20
ready changed
await 120 "the first checkpoint" past_step changed 20
h upgrade changed $chart --reuse-values --set worker.restartOnUpgrade=true --set-json job.optimizer.lr=0.05 >/dev/null
k delete pod -l app.kubernetes.io/instance=changed,app.kubernetes.io/component=server >/dev/null
workers_of_changed() { k get job -l app.kubernetes.io/instance=changed -o name; }
one_other_job() { [ "$(workers_of_changed | wc -l)" = 1 ] && [ "$(workers_of_changed)" != job.batch/changed-sluice-worker ]; }
await 60 "the workers' Job has another name" one_other_job
k wait --for=condition=Complete --timeout=900s "$(workers_of_changed)" >/dev/null
[ "$(hashes changed | wc -w)" = 1 ] || fail "the workers of a changed job ended with other parameters: $(hashes changed)"
[[ "$(k logs changed-sluice-server-0 -c server)" == *"continues after step"* ]] || fail "a changed job did not go on from its checkpoint"
no_workers() { [ -z "$(workers_of_changed)" ]; }
await 120 "a finished Job of workers is removed" no_workers
h upgrade changed $chart --reuse-values --set-string server.podAnnotations.again=1 --wait --timeout 180s >/dev/null
h uninstall changed --wait >/dev/null
await 60 "nothing is left of an uninstalled release whose workers were gone" gone changed
say "a changed job file: the run went on from its checkpoint; its finished workers were removed in time"

racks=(--set "worker.replicaCount=4,relay.enabled=true,relay.racks[0].workers=2,relay.racks[1].workers=2,relay.persistence.size=1Gi"
  --set "relay.resources.requests.cpu=50m,relay.resources.requests.memory=64Mi,job.relays.uplink=int8,job.steps=$((steps / 2))")
both_relays_ready() { k wait --for=condition=Ready --timeout=2s "pod/$1-sluice-relay-0-0" "pod/$1-sluice-relay-1-0" >/dev/null 2>&1; }
uids_of_racks() { k get job racks-sluice-worker-0 racks-sluice-worker-1 -o jsonpath='{.items[*].metadata.uid} {.items[*].metadata.generation}'; }
install calm-racks "${racks[@]}" --set server.persistence.enabled=false,relay.persistence.enabled=false
complete calm-racks 0 1
calm=$(hashes calm-racks)
[ "$(wc -w <<<"$calm")" = 1 ] || fail "the workers of two racks ended with other parameters: $calm"
h uninstall calm-racks --wait >/dev/null
say "two racks, undisturbed: $calm"
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
h upgrade racks $chart --reuse-values --set server.image.tag="$version-next",worker.image.tag=other --wait --timeout 240s >/dev/null
[ "$jobs_before" = "$(uids_of_racks)" ] || fail "the upgrade touched the racks' Jobs"
[ "$(k get pod racks-sluice-relay-0-0 -o jsonpath='{.spec.containers[0].image}')" = "localhost/sluice-server:$version-next" ] ||
  fail "the upgrade did not reach the relays"
say "a deleted worker, and an upgrade of shards and relays, at step $(metric racks 0 sluice_step)"
[ -z "$(k get job racks-sluice-worker-0 -o jsonpath='{.status.completionTime}')" ] || fail "the run had ended before all of that: raise STEPS"
complete racks 0 1
[ "$(hashes racks)" = "$calm" ] || fail "racks, disturbed: $(hashes racks), undisturbed: $calm"
k delete pod racks-sluice-relay-0-0 --wait >/dev/null
await 120 "a relay that begins after the end is ready" both_relays_ready racks
h test racks --logs >"$work/test.log" 2>&1 || fail "helm test: $(tail -n 20 "$work/test.log")"
k delete pod racks-sluice-test --wait >/dev/null  # Helm leaves it, so that its log can be read.
h uninstall racks --wait >/dev/null
await 60 "nothing is left of an uninstalled release with racks" gone racks
say "two racks, disturbed: the same parameters"

install hand --set worker.enabled=false,worker.replicaCount=2,job.steps=200
for rank in 0 1; do k apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: hand-$rank, labels: {app.kubernetes.io/name: sluice, app.kubernetes.io/instance: hand, app.kubernetes.io/component: worker}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: worker
      image: localhost/sluice-fashion:$version
      args: [--job=/job/job.yaml, --coordinator=hand-sluice-server-0.hand-sluice-server.$ns.svc:7070, --rank=$rank, --supervised,
             --token-file=/auth/token, --tls-cert=/tls/tls.crt, --tls-key=/tls/tls.key, --tls-ca=/tls/ca.crt]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {memory: 2Gi}}
      volumeMounts: [{name: job, mountPath: /job}, {name: auth, mountPath: /auth}, {name: tls, mountPath: /tls}]
  volumes:
    - {name: job, configMap: {name: hand-sluice-job}}
    - {name: auth, secret: {secretName: hand-token, defaultMode: 0440}}
    - {name: tls, secret: {secretName: hand-tls, defaultMode: 0440}}
YAML
done
for rank in 0 1; do k wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s "pod/hand-$rank" >/dev/null; done
h uninstall hand --wait >/dev/null
say "workers started by hand have trained"
say "all well"
