#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks helm/sluice without a cluster: lint, a matrix of values, the rendered objects and the examples in deploy/kubernetes
# against the schemas of the oldest and the newest supported Kubernetes, helm-unittest, that its README lists all values, and that
# a registry accepts its package and gives it back.
# usage: tools/check_chart.sh [--fix]     --fix writes the README
set -euo pipefail
cd "$(dirname "$0")/.."
fix=${1:-}
scripts/chart-tools.sh
tools=.deps/chart
helm=$tools/bin/helm
chart=helm/sluice
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'check_chart: %s\n' "$*"; }

docs() { $tools/bin/helm-docs --chart-search-root "$chart" --log-level warning "$@"; }
if [ "$fix" = --fix ]; then docs; fi
docs --dry-run >"$work/README.md"
diff -u "$chart/README.md" "$work/README.md" || { say "$chart/README.md does not match the values: run tools/check_chart.sh --fix" >&2; exit 1; }
! grep -nE '^\| [^|]+ \| [^|]+ \| [^|]+ \|  \|$' "$chart/README.md" || { say "values without a description" >&2; exit 1; }

# Values to check: each file alone, and the minimal one with each of these.
sets=(
  server.replicaCount=2,worker.replicaCount=3
  worker.enabled=false
  server.persistence.enabled=false
  tls.enabled=true,tls.existingSecret=certificate
  tls.enabled=true,tls.certManager.issuerRef.name=ca
  tls.enabled=true,tls.serverSecret=servers,tls.workerSecret=workers,metrics.podMonitor.enabled=true
  tls.enabled=true,tls.serverSecret=servers,tls.workerSecret=workers,auth.serverSecret=roles,auth.allowAnonymous=false
  auth.existingSecret=token,auth.allowAnonymous=false
  auth.existingSecret=token,auth.serverSecret=servers,auth.allowAnonymous=false
  auth.existingSecret=token,auth.serverSecret=servers,auth.observerSecret=observer,auth.allowAnonymous=false
  worker.persistence.enabled=true
  worker.persistence.enabled=true,job.checkpoint.store=path
  worker.shm.sizeLimit=1Gi,worker.runtimeClassName=nvidia
  worker.kind=JobSet
  worker.restartOnUpgrade=true
  networkPolicy.enabled=false,podDisruptionBudget.enabled=false,serviceAccount.create=false
  networkPolicy.egress.restrictWorkers=true
  networkPolicy.egress.restrictServers=false
  podDisruptionBudget.maxUnavailableRelays=2,podDisruptionBudget.maxUnavailableWorkers=1
  metrics.podMonitor.enabled=true
  log.format=json,log.level=warning
  relay.enabled=true,relay.racks[0].workers=2,relay.racks[1].workers=1
  relay.enabled=true,relay.racks[0].workers=2,worker.enabled=false,relay.persistence.enabled=false
  relay.enabled=true,relay.racks[0].workers=2,worker.persistence.enabled=true,job.checkpoint.store=path
  relay.enabled=true,relay.racks[0].workers=2,worker.kind=JobSet,worker.restartOnUpgrade=true
)
# render NAME ARGUMENTS...: renders twice, because the output must not contain anything random.
render() {
  local name=$1
  shift
  $helm template demo "$chart" --namespace default "$@" >"$work/$name.yaml"
  $helm template demo "$chart" --namespace default "$@" | cmp - "$work/$name.yaml"
}
for values in "$chart"/ci/*-values.yaml; do
  $helm lint --strict --quiet "$chart" --values "$values"
  render "$(basename "$values" .yaml)" --values "$values"
done
for i in "${!sets[@]}"; do
  render "set-$i" --values "$chart/ci/minimal-values.yaml" --set "${sets[$i]}"
done
# An upgrade with --reuse-values has the defaults of the installed chart, which may lack values.
if $helm template demo "$chart" --values "$chart/ci/minimal-values.yaml" --set server.tmp=null,tests.tmp=null >/dev/null 2>"$work/refusal" ||
  ! grep -q "use --reset-then-reuse-values instead" "$work/refusal"; then
  say "missing values are not refused: $(cat "$work/refusal")" >&2; exit 1
fi
rendered=("$work"/*.yaml)
examples=(deploy/kubernetes/*.yaml)
say "${#rendered[@]} sets of values render, each twice with the same output"
! grep -n 'emptyDir: {}' "${rendered[@]}" || { say "an emptyDir without sizeLimit can fill a node's disk" >&2; exit 1; }
# The examples belong to release `demo`, so the names in them are those of its objects.
while read -r name; do
  grep -qF -- "$name" "${rendered[@]}" || { say "deploy/kubernetes: the chart gives nothing the name $name" >&2; exit 1; }
done < <(grep -oh 'demo-sluice[a-z0-9.:-]*' "${examples[@]}" | sort -u)

for version in 1.29.14 1.34.4; do
  $tools/bin/kubeconform -strict -summary -schema-location "$tools/schemas/$version/{{.ResourceKind}}{{.KindSuffix}}.json" \
    -schema-location "$tools/schemas/crds/{{.ResourceKind}}{{.KindSuffix}}.json" "${rendered[@]}" "${examples[@]}" |
    sed "s/^/check_chart: Kubernetes $version: /"
done

# The bytes of the package do not depend on the time.
for package in one two; do
  mkdir "$work/$package"
  SOURCE_DATE_EPOCH=1700000000 scripts/chart.sh 1.2.3~test "$work/$package" >/dev/null
  sleep 1.1
done
cmp "$work"/{one,two}/sluice-1.2.3-test.tgz
tests/packaging/chart_registry_test.py "$work/one/sluice-1.2.3-test.tgz" "$helm" | sed 's/^/check_chart: /'

# Runs in a separate folder, since it may write snapshots.
$tools/bin/helm-unittest --strict "$chart"
say "no problems"
