#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the files of a release in DIR: a tarball of the programs that need only glibc (2.34 or newer) and libgcc, the same as a Debian
# package, Debian packages of the C++ library and of sluice-worker with LibTorch, the wheel, the chart, bills of materials, the notes
# of CHANGELOG.md and SHA256SUMS.
#
# usage: scripts/release.sh VERSION [DIR] [--with-arm] [--without-worker]     DIR is build/release-VERSION
#   VERSION must be the one of CMakeLists.txt and have a section in CHANGELOG.md. With the suffix ~rc1, for example, the
#   notes are the section `Unreleased`. --without-worker leaves out sluice-worker, which takes minutes to compile.
#   --with-arm also compiles the wheel for ARM (scripts/wheel.sh), which takes half an hour the first time.
# DEBFULLNAME and DEBEMAIL are the maintainer that the Debian packages name.
# SOURCE_DATE_EPOCH is the time of all files; the default is the time of the last commit. Packing the same
# programs again gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

worker=ON arm=OFF
while [ $# -gt 0 ]; do
  case "${!#}" in
    --without-worker) worker=OFF ;;
    --with-arm) arm=ON ;;
    *) break ;;
  esac
  set -- "${@:1:$#-1}"
done
version=${1:?usage: scripts/release.sh VERSION [DIR] [--with-arm] [--without-worker]}
out=$(realpath -m "${2:-build/release-$version}")
say() { printf 'release: %s\n' "$*"; }

declared=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "${version%%~*}" = "$declared" ] || { say "CMakeLists.txt has version $declared, not ${version%%~*}. Change one of them." >&2; exit 1; }
heading="## $version "
[ "$version" = "$declared" ] || heading="## Unreleased"
notes=$(awk -v heading="$heading" 'index($0 " ", heading) == 1 { inside = 1; next } /^## / { inside = 0 } inside' CHANGELOG.md)
[ -n "$notes" ] || { say "CHANGELOG.md has no section '$heading'. Name the release and its date there first." >&2; exit 1; }

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
programs=(sluice sluice-server sluice-relay)
built=("${programs[@]}")
build=build/static
scripts/setup.sh --grpc
if [ "$worker" = ON ]; then
  built+=(sluice-worker)
  scripts/setup.sh
  ls "${LIBTORCH_ROOT:-.deps/libtorch}"/licenses/*/* >/dev/null || {
    say "LibTorch has no licences, which the package of sluice-worker needs. Delete .deps/libtorch and run this again." >&2; exit 1; }
fi
mkdir -p build
say "building ${built[*]}"
cmake --preset static "-DSLUICE_TORCH=$worker" >build/configure-static.log 2>&1 || { cat build/configure-static.log >&2; exit 1; }
cmake --build "$build" --target "${built[@]}" job_schema man_pages >build/release.log 2>&1 ||
  { tail -n 50 build/release.log >&2; exit 1; }

say "building the library"
# It contains the same gRPC, and loads Debian's other libraries, which are not position-independent as static ones.
library_build=build/library
cmake --preset library "-DCMAKE_INSTALL_LIBDIR=lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)" >build/configure-library.log 2>&1 ||
  { cat build/configure-library.log >&2; exit 1; }
cmake --build "$library_build" --target sluice_shared sluice_compress >build/release-library.log 2>&1 ||
  { tail -n 50 build/release-library.log >&2; exit 1; }

rm -rf "$out"
mkdir -p "$out"
name=sluice-$version-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --prefix "$stage/$name" --component programs --strip >/dev/null
tools/make_sbom.py "$build" "$version" "$out/$name.spdx.json" "$stage/$name/LICENSES" "${programs[@]/#/bin/}"
cmake --install "$library_build" --prefix "$stage/library" --component library --strip >/dev/null
cmake --install "$library_build" --prefix "$stage/development" --component development --strip >/dev/null
tools/make_sbom.py "$library_build" "$version" "$out/libsluice-${name#sluice-}.spdx.json" "$stage/library/LICENSES" "libsluice.so.$declared"
cp "$stage/library/LICENSES" "$stage/development/"
worker_tree=
if [ "$worker" = ON ]; then
  worker_tree=$stage/sluice-worker
  cmake --install "$build" --prefix "$worker_tree" --component worker --strip >/dev/null
  tools/make_sbom.py "$build" "$version" "$out/sluice-worker-${name#sluice-}.spdx.json" "$worker_tree/LICENSES" bin/sluice-worker
fi
find "$stage" -type d -exec chmod 755 {} +
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -C "$stage" -c "$name" | gzip -9 -n >"$out/$name.tar.gz"

scripts/deb.sh "$version" "$out" "$stage/$name" "$stage/library" "$stage/development" ${worker_tree:+"$worker_tree"}
scripts/wheel.sh "$out"
[ "$arm" = OFF ] || scripts/wheel.sh "$out" --arch aarch64
scripts/chart.sh "$version" "$out"
printf '%s\n' "$notes" | sed -e '/./,$!d' >"$out/NOTES.md"
(cd "$out" && sha256sum -- *.tar.gz *.tgz *.deb *.whl *.spdx.json >SHA256SUMS)
say "in $out:"
(cd "$out" && du -h -- *)
