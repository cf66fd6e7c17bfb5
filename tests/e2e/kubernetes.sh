#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the chart on a real cluster, in a namespace that enforces the `restricted` Pod Security profile and has a ResourceQuota, with TLS
# and token. Each file of tests/e2e/kubernetes is a case. Most of them train on Fashion-MNIST with 2 shards and 3 workers.
#
# usage: tests/e2e/kubernetes.sh IMAGES [CASE...]
#   IMAGES    folder that tests/e2e/kubernetes_images.sh wrote
#   CASE      such as `shards`; without any, all cases run
# The cluster is one of these:
#   KUBECONFIG=...       any cluster; LOAD="kind load image-archive" is the command for each image's archive
#   CLUSTER=PROGRAM      a program with the commands `up`, `exec COMMAND...` and `load ARCHIVE...`
# STEPS=2000             length of the training, if the cluster is fast
# FORMER=FOLDER          release 0.1.0, as `.ci/nightly upgrade` makes it: its files in source/, its images in images/. Without it, the case
#                        `upgrade` is left out
set -euo pipefail
images=$(cd "${1:?$(sed -n '6s/^# //p' "$0")}" && pwd)
former=${FORMER:+$(cd "$FORMER" && pwd)}
shift
cases=("$@")
[ $# -gt 0 ] || cases=(undisturbed disturbed shards changed_job racks own_workers upgrade)
cd "$(dirname "$0")/../.."
for name in "${cases[@]}"; do
  [ -e "tests/e2e/kubernetes/$name.sh" ] || { echo "kubernetes: there is no case $name; the cases are the files of tests/e2e/kubernetes" >&2; exit 2; }
done

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
trap 'fail "${BASH_SOURCE[0]}, line $LINENO"' ERR

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
complete() { k wait --for=condition=Complete --timeout=900s job -l "app.kubernetes.io/instance=$1" >/dev/null; }
hashes() { k logs -l "app.kubernetes.io/instance=$1,app.kubernetes.io/component=worker" --tail=-1 | sed -n "s/.*parameters' sha256 //p" | sort -u; }
metric() {  # metric RELEASE SHARD NAME
  k get --raw "/api/v1/namespaces/$ns/pods/https:$1-sluice-server-$2:7071/proxy/metrics" | sed -n "s/^$3\({[^}]*}\)\{0,1\} //p" | head -n 1
}
await() {  # await SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do [ $SECONDS -lt $end ] || fail "waited in vain: $what"; sleep 0.5; done
}
all_ready() {  # all_ready RELEASE SHARDS
  local pods
  mapfile -t pods < <(seq -f "pod/$1-sluice-server-%g" 0 $(($2 - 1)))
  k wait --for=condition=Ready --timeout=2s "${pods[@]}" >/dev/null 2>&1
}
ready() { await 240 "all shards of $1 are ready" all_ready "$1" "${2:-2}"; }  # ready RELEASE [SHARDS]
past_step() { local step; step=$(metric "$1" 0 sluice_step || true); [ "${step%.*}" -ge "$2" ] 2>/dev/null; }
# Copying takes a while, so a step that has passed does not mean that its checkpoint is complete.
saved() { local step; step=$(metric "$1" 0 sluice_checkpoint_step || true); [ "${step%.*}" -ge "$2" ] 2>/dev/null; }  # saved RELEASE STEP
says() { [[ "$(k logs "$1-sluice-server-0" -c server 2>/dev/null || true)" == *"$2"* ]]; }  # says RELEASE TEXT: shard 0 does
runs_still() { [ -z "$(k get job -l "app.kubernetes.io/instance=$1" -o jsonpath='{.items[*].status.completionTime}')" ]; }
restart_all() {  # restart_all RELEASE ARGUMENTS...: upgrades the release as docs/kubernetes.md describes under "Changing the job"
  local release=$1
  shift
  h upgrade "$release" $chart "$@" --set worker.restartOnUpgrade=true >/dev/null
  k delete pod -l "app.kubernetes.io/instance=$release,app.kubernetes.io/component=server" --ignore-not-found >/dev/null
}
gone() { [ -z "$(k get all,configmaps,pvc,pdb,networkpolicies,serviceaccounts -l "app.kubernetes.io/instance=$1" -o name)" ]; }

for name in "${cases[@]}"; do source "tests/e2e/kubernetes/$name.sh"; done
say "all well"
