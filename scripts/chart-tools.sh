#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the tools that check the chart into .deps/chart/: helm, helm-unittest, kubeconform and helm-docs, as Go
# programs of pinned versions, and the schemas of Kubernetes and of the custom resources that the chart may create or that deploy/kubernetes has examples of.
# Needs Go and PyYAML (python3-yaml). Idempotent; the first run takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/.deps/chart
kubernetes=(1.29.14 1.34.4)
prometheus_operator=v0.85.0
cert_manager=v1.18.2
jobset=v0.10.1
kueue=v0.17.0
trainer=v2.0.0
keda=v2.21.0
stamp_text="helm 3.19.5, helm-unittest 1.1.2, kubeconform 0.8.0, helm-docs 1.14.2, schemas 2 of ${kubernetes[*]} $prometheus_operator $cert_manager $jobset $kueue $trainer $keda"

say() { printf 'chart-tools: %s\n' "$*"; }

if [ "$(cat "$root/stamp" 2>/dev/null)" = "$stamp_text" ]; then say "already installed"; exit 0; fi
command -v go >/dev/null || { say "Go (1.24 or newer) is missing: install it to check the chart" >&2; exit 1; }
mkdir -p "$root/bin"
export CGO_ENABLED=0 GOBIN=$root/bin GOFLAGS=-buildvcs=false

install() {  # install VERSION PACKAGE [LDFLAGS]
  local name=${2##*/}
  [ -x "$root/bin/$name.$1" ] && return
  say "building $name $1"
  go install -trimpath -ldflags "${3:--s -w}" "$2@$1"
  touch "$root/bin/$name.$1"; chmod +x "$root/bin/$name.$1"
}
version=helm.sh/helm/v3/internal/version
chartutil=helm.sh/helm/v3/pkg
install v3.19.5 helm.sh/helm/v3/cmd/helm \
  "-s -w -X $version.version=v3.19.5 -X $chartutil/chartutil.k8sVersionMajor=1 -X $chartutil/chartutil.k8sVersionMinor=34 -X $chartutil/lint/rules.k8sVersionMajor=1 -X $chartutil/lint/rules.k8sVersionMinor=34"
install v0.8.0 github.com/yannh/kubeconform/cmd/kubeconform
install v1.14.2 github.com/norwoodj/helm-docs/cmd/helm-docs "-s -w -X main.version=1.14.2"

# Its go.mod has a replace line, which `go install` refuses. So this makes a module with the same line.
if [ ! -x "$root/bin/helm-unittest.v1.1.2" ]; then
  say "building helm-unittest v1.1.2"
  module=$(mktemp -d)
  trap 'rm -rf "$module"' EXIT
  (
    cd "$module"
    printf 'module unittest\n\ngo 1.24\n\nreplace github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0\n' >go.mod
    go get -tool github.com/helm-unittest/helm-unittest/cmd/helm-unittest@v1.1.2 2>/dev/null
    go build -trimpath -ldflags "-s -w" -o "$root/bin/helm-unittest" github.com/helm-unittest/helm-unittest/cmd/helm-unittest
  )
  touch "$root/bin/helm-unittest.v1.1.2"; chmod +x "$root/bin/helm-unittest.v1.1.2"
fi

folder_of() { go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }
rm -rf "$root/schemas"
for version in "${kubernetes[@]}"; do
  say "schemas of Kubernetes $version"
  python3 scripts/chart_schemas.py api "$(folder_of "k8s.io/kubernetes@v$version")/api/openapi-spec/swagger.json" "$root/schemas/$version"
done
python3 scripts/chart_schemas.py crds "$root/schemas/crds" \
  "$(folder_of github.com/prometheus-operator/prometheus-operator@$prometheus_operator)"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml \
  "$(folder_of github.com/cert-manager/cert-manager@$cert_manager)"/deploy/crds/*certificates.yaml \
  "$(folder_of sigs.k8s.io/jobset@$jobset)"/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml \
  "$(folder_of sigs.k8s.io/kueue@$kueue)"/config/components/crd/bases/kueue.x-k8s.io_{clusterqueues,localqueues,resourceflavors,workloadpriorityclasses}.yaml \
  "$(folder_of github.com/kubeflow/trainer/v2@$trainer)"/manifests/base/crds/trainer.kubeflow.org_{clustertrainingruntimes,trainjobs}.yaml \
  "$(folder_of github.com/kedacore/keda/v2@$keda)"/config/crd/bases/keda.sh_scaledobjects.yaml
printf '%s\n' "$stamp_text" >"$root/stamp"
say "in $root"
