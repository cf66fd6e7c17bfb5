#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the images of deploy/docker/Dockerfile with buildah, on a base made by mmdebstrap, without a registry or an
# engine. Needs Debian 12 and root. Writes OCI archives, which `ctr images import`, `podman load` and `skopeo` read.
#
# usage: deploy/docker/build.sh [--programs BUILD_FOLDER [--wheel WHEEL]] OUT
#   --programs build/static    uses the programs that scripts/release.sh built there, and .deps/libtorch, instead of compiling
#                              them in an image. Programs of another folder load Debian's old gRPC, for tests.
#   --wheel WHEEL              also makes sluice-python with this wheel of the release. Without --programs, it is always made.
# VARIANT=cuda    builds sluice-worker for GPUs instead, tagged VERSION-cuda; it is always compiled
# BASE=image      uses another base, such as docker.io/library/debian:12.11-slim if a registry can be reached
set -euo pipefail
cd "$(dirname "$0")/../.."

programs_from='' wheel=''
if [ "${1:-}" = --programs ]; then programs_from=$2; shift 2; fi
if [ -n "$programs_from" ] && [ "${1:-}" = --wheel ]; then wheel=$2; shift 2; fi
out=${1:?$(sed -n '6,10s/^# //p' "$0")}
mkdir -p "$out"
version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
variant=${VARIANT:-cpu} tag=$version images=(sluice-server sluice-worker)
if [ -z "$programs_from" ] || [ -n "$wheel" ]; then images+=(sluice-python); fi
case "$variant" in
  cpu) ;;
  cuda) tag=$version-cuda images=(sluice-worker) ;;
  *) echo "images: VARIANT is $variant: cpu or cuda" >&2; exit 2 ;;
esac
if [ "$variant" = cuda ] && [ -n "$programs_from" ]; then
  echo "images: VARIANT=cuda takes no --programs, because its libraries are fetched where it is compiled" >&2; exit 2
fi
export BUILDAH_ISOLATION=chroot
storage=(--storage-driver overlay)

say() { printf 'images: %s\n' "$*"; }
for tool in buildah mmdebstrap; do
  command -v $tool >/dev/null || { say "$tool is missing: apt-get install buildah mmdebstrap" >&2; exit 1; }
done
b() { buildah "${storage[@]}" "$@"; }

from_tar() {  # from_tar IMAGE TAR: an image of one layer
  local container
  container=$(b from scratch)
  b add --quiet "$container" "$2" / >/dev/null
  b commit --quiet "$container" "$1" >/dev/null
  b rm "$container" >/dev/null
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${BASE:-}" ]; then
  BASE=localhost/debian:bookworm
  if ! b inspect --type image "$BASE" >/dev/null 2>&1; then
    say "making $BASE"
    mmdebstrap --quiet --variant=minbase bookworm "$work/base.tar" \
      "deb http://deb.debian.org/debian bookworm main" "deb http://deb.debian.org/debian bookworm-updates main" \
      "deb http://deb.debian.org/debian-security bookworm-security main"
    from_tar "$BASE" "$work/base.tar"
  fi
fi

programs=localhost/sluice-programs:$tag wheel_from=localhost/sluice-wheel:$tag
libraries=
if [ -n "$programs_from" ]; then
  say "programs of $programs_from"
  if readelf -d "$programs_from/bin/sluice-server" | grep -q 'libgrpc++'; then
    say "these programs load Debian's gRPC, which has known vulnerabilities: do not publish the images"
    libraries="libgrpc++1.51 libprotobuf32 libabsl20220623 libyaml-cpp0.7 libprometheus-cpp-core1.0 libhwy1 libssl3 libpng16-16 libturbojpeg0 zlib1g"
  fi
  mkdir -p "$work"/root/programs/{bin,lib,wheel} "$work"/root/programs/doc/{sluice,sluice-worker}
  for program in sluice sluice-server sluice-relay sluice-worker; do
    strip -o "$work/root/programs/bin/$program" "$programs_from/bin/$program"
  done
  cp .deps/libtorch/lib/libtorch_cpu.so .deps/libtorch/lib/libc10.so .deps/libtorch/lib/libgomp.so.1 \
    .deps/libtorch/lib/libcudart.so.13 .deps/libtorch/lib/libcupti.so.13 "$work/root/programs/lib/"
  if [ -z "$libraries" ]; then deploy/docker/licences.sh "$programs_from" "$version" "$work/root/programs/doc"; fi
  [ -z "$wheel" ] || cp "$wheel" "$work/root/programs/wheel/"
  tar -C "$work/root" -cf "$work/programs.tar" programs
  rm -rf "$work/root"
  from_tar "$programs" "$work/programs.tar"
  wheel_from=$programs
else
  say "compiling: an hour on two cores"
  b bud --quiet --pull-never --layers --target build --build-arg BASE="$BASE" --build-arg VARIANT="$variant" -t "$programs" -f deploy/docker/Dockerfile . >/dev/null
  [ "$variant" = cuda ] ||
    b bud --quiet --pull-never --layers --target build-python --build-arg BASE="$BASE" -t "$wheel_from" -f deploy/docker/Dockerfile . >/dev/null
fi

# pip inside of an image trusts the package index that this machine trusts.
certificates=/etc/ssl/certs/ca-certificates.crt
for image in "${images[@]}"; do
  say "$image"
  b bud --quiet --pull-never --layers --target $image --build-arg BASE="$BASE" --build-arg PROGRAMS="$programs" --build-arg WHEEL="$wheel_from" \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" --build-arg VARIANT="$variant" --build-arg LIBRARIES="$libraries" \
    --build-arg CERTIFICATES=/run/certificates.crt --volume "$certificates:/run/certificates.crt:ro" -t localhost/$image:"$tag" -f deploy/docker/Dockerfile . >/dev/null
  archive=$out/$image${tag#"$version"}.tar
  rm -f "$archive"
  b push --quiet localhost/$image:"$tag" oci-archive:"$archive:localhost/$image:$tag"
done
ls -l --block-size=M "$out"/sluice-*.tar
