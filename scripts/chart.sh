#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs helm/sluice into DIR/sluice-VERSION.tgz, which `helm push` uploads to an OCI registry. VERSION is the chart's version and
# the tag of the images. Helm allows no `~` in it, so 0.2.0~rc1 becomes 0.2.0-rc1.
# usage: scripts/chart.sh VERSION DIR     (scripts/release.sh calls it)
# SOURCE_DATE_EPOCH is the time of all files. Packing the same chart again gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1/\~/-} out=$2
scripts/chart-tools.sh
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
.deps/chart/bin/helm package helm/sluice --version "$version" --app-version "$version" --destination "$stage" >/dev/null
# Helm writes the current time, so this packs the same files again.
tar -xmzf "$stage/sluice-$version.tgz" -C "$stage"
chmod -R u=rwX,go=rX "$stage/sluice"
(cd "$stage" && find sluice -type f -print0 | LC_ALL=C sort -z |
  tar --null --files-from=- --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -c) | gzip -9 -n >"$out/sluice-$version.tgz"
