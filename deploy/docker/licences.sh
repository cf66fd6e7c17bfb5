#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the licences and the bill of materials (SPDX) of the images' programs: OUT/sluice for sluice-server, OUT/sluice-worker.
# usage: deploy/docker/licences.sh BUILD VERSION OUT     BUILD has SLUICE_GRPC_PREFIX
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?$(sed -n '4s/^# //p' "$0")} version=${2:?} out=${3:?}
mkdir -p "$out/sluice" "$out/sluice-worker"
tools/make_sbom.py "$build" "$version" "$out/sluice/sluice.spdx.json" "$out/sluice/LICENSES" bin/sluice bin/sluice-server bin/sluice-relay
tools/make_sbom.py "$build" "$version" "$out/sluice-worker/sluice-worker.spdx.json" "$out/sluice-worker/LICENSES" bin/sluice-worker
