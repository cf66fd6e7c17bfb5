#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The images that kubernetes.sh loads: those of deploy/docker, the servers' image under a second tag, and the workers'
# image with Fashion-MNIST.
# usage: tests/e2e/kubernetes_images.sh BUILD_FOLDER OUT
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: kubernetes_images.sh BUILD_FOLDER OUT} out=${2:?usage: kubernetes_images.sh BUILD_FOLDER OUT}
data=/usr/share/datasets/fashion-mnist  # Debian's dataset-fashion-mnist.
deploy/docker/build.sh --programs "$build" "$out"

version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
export BUILDAH_ISOLATION=chroot
b() { buildah --storage-driver overlay "$@"; }
push() { rm -f "$out/$2.tar"; b push --quiet "$1" "oci-archive:$out/$2.tar:$1"; }

# Another label makes another image, as the next version would.
container=$(b from --pull-never "localhost/sluice-server:$version")
b config --label next=yes "$container"
b commit --quiet "$container" "localhost/sluice-server:$version-next" >/dev/null
b rm "$container" >/dev/null
push "localhost/sluice-server:$version-next" sluice-next

container=$(b from --pull-never "localhost/sluice-worker:$version")
b add --quiet "$container" "$data" /data >/dev/null
b commit --quiet "$container" "localhost/sluice-fashion:$version" >/dev/null
b rm "$container" >/dev/null
push "localhost/sluice-fashion:$version" sluice-fashion
