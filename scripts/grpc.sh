#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what the release links statically and Debian 12 does not have into .deps/grpc: gRPC 1.56.2 (Debian's 1.51 has known
# denial-of-service holes), Highway and prometheus-cpp, which Debian packages only as shared libraries, and some
# libraries as position-independent code. All others are Debian's. Takes 15 minutes on two cores. Idempotent.
# Called by scripts/setup.sh --grpc.
# Needs cargo, which fetches the crate grpcio-sys: it contains the source of gRPC.
#
# usage: scripts/grpc.sh                  builds, if .deps/grpc is not of this recipe
#        scripts/grpc.sh --built          exits with 0 if .deps/grpc is of this recipe
#        scripts/grpc.sh --arch aarch64   builds for ARM into .deps/grpc-aarch64, with the headers of .deps/arm64 (scripts/arm64.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

grpc_version=1.56.2
crate=grpcio-sys crate_version=0.13.0 crate_file=grpcio-sys-0.13.0+1.56.2-patched
crate_sha256=b3dae9132320ae1b03ea55b5ddc88ca72a31fb85fa631a241a40157f5feffe43
# Debian's source packages: NAME VERSION FILE SHA-256. The headers come from the installed packages of the same versions.
highway=(highway 1.0.3-3+deb12u1 highway_1.0.3.orig.tar.gz 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
prometheus=(prometheus-cpp 1.0.1-1 prometheus-cpp_1.0.1.orig.tar.gz 593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16)
# Debian's static libraries of these source packages only fit programs, and the Python module is a shared library. The version
# is that of the installed headers. SOURCE:PACKAGE-OF-HEADERS
independent=(abseil:libabsl-dev protobuf:libprotobuf-dev re2:libre2-dev yaml-cpp:libyaml-cpp-dev)
say() { printf 'grpc: %s\n' "$*"; }
arch=$(uname -m) suffix='' sysroot='' toolchain=()
if [ "${1:-}" = --arch ] && [ "${2:-$arch}" != "$arch" ]; then
  arch=$2 suffix=-$2 sysroot=$PWD/.deps/arm64 toolchain=("-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/$2.cmake")
  [ "$arch" = aarch64 ] || { say "this machine compiles for itself and aarch64, not for $arch" >&2; exit 2; }
  scripts/arm64.sh
fi
root=$PWD/.deps/grpc$suffix
work=$PWD/.deps/grpc-build$suffix
# Packages in a folder are not installed, but their changelogs begin with "SOURCE (VERSION)".
source_version() {  # source_version PACKAGE-OF-HEADERS
  if [ -z "$sysroot" ]; then
    dpkg-query -W -f='${source:Version}' "$1"
  else
    zcat "$sysroot/usr/share/doc/$1/changelog.Debian.gz" | sed -n '1s/.*(\(.*\)).*/\1/p'
  fi
}
versions=
for pair in "${independent[@]}"; do versions+="${pair%:*} $(source_version "${pair#*:}" 2>/dev/null || echo none), "; done
stamp_text="grpc $grpc_version from $crate $crate_version, ${highway[*]:0:2}, ${prometheus[*]:0:2}, ${versions}recipe 2"

check_sha256() {  # check_sha256 FILE WANTED
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  [ "$found" = "$2" ] || { say "$1 has SHA-256 $found, but this script expects $2. Delete the file and try again; do not use it." >&2; exit 1; }
}

# Cargo fetches only what a project names. It uses the registry of this machine's own configuration.
fetch_grpc() {
  local project=$work/crate file
  command -v cargo >/dev/null || { say "cargo (Rust) is missing: install it to fetch the source of gRPC" >&2; exit 1; }
  mkdir -p "$project/src" && : >"$project/src/lib.rs"
  printf '[package]\nname = "fetch"\nversion = "0.0.0"\n\n[dependencies]\n%s = "=%s"\n' "$crate" "$crate_version" >"$project/Cargo.toml"
  (cd "$project" && cargo fetch --quiet)
  file=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "$crate_file.crate" -print -quit)
  [ -n "$file" ] || { say "cargo fetched no $crate_file.crate" >&2; exit 1; }
  check_sha256 "$file" "$crate_sha256"
  tar -xzf "$file" -C "$work"
}

# Fetches a source package from the archive that this machine's APT uses for binary packages, without a change of its lists.
fetch_source() {  # fetch_source NAME VERSION
  local apt=$work/apt options
  if [ ! -e "$apt/sources.list.d" ]; then
    mkdir -p "$apt/lists/partial" "$apt/sources.list.d"
    if [ -r /etc/apt/sources.list.d/debian.sources ]; then
      sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$apt/sources.list.d/source.sources"
    elif ! sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$apt/sources.list.d/source.list"; then
      say "neither /etc/apt/sources.list.d/debian.sources nor /etc/apt/sources.list names the archive for Debian's source packages" >&2
      exit 1
    fi
  fi
  options=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt/sources.list.d" -o "Dir::State::Lists=$apt/lists"
           -o "Dir::Cache::srcpkgcache=$apt/src.bin" -o "Dir::Cache::pkgcache=$apt/pkg.bin" -o "APT::Sandbox::User=root")
  [ -e "$apt/updated" ] || { apt-get "${options[@]}" -q -q update; : >"$apt/updated"; }
  (cd "$work" && apt-get "${options[@]}" -q -q source --download-only "$1=$2")
}
fetch_debian() {  # fetch_debian NAME VERSION FILE SHA-256: without Debian's patches
  fetch_source "$1" "$2"
  check_sha256 "$work/$3" "$4"
  mkdir -p "$work/$1"
  tar -xf "$work/$3" -C "$work/$1" --strip-components=1
}

# APT has checked the hashes that Debian signed. Debian's patches, such as fixes of vulnerabilities, are applied.
fetch_patched() {  # fetch_patched NAME PACKAGE-OF-HEADERS
  local version
  version=$(source_version "$2")
  fetch_source "$1" "$version"
  [ ! -e "$work/$1.unpacked" ] || return 0
  rm -rf "${work:?}/$1"
  (cd "$work" && dpkg-source --no-check -x "$1_${version#*:}.dsc" "$1" >/dev/null)
  : >"$work/$1.unpacked"
}

# Programs of the release are hardened, and so are the libraries in them. CET needs all objects.
flags="-g0 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
case "$arch" in
  x86_64) flags="$flags -fcf-protection=full" ;;
  aarch64) flags="$flags -mbranch-protection=standard" ;;
esac
# The paths of the build folder must not be part of a release.
flags="$flags -ffile-prefix-map=$work=.${sysroot:+ -ffile-prefix-map=$sysroot=}"
configure() {  # configure SOURCE BUILD OPTION...
  local source=$1 build=$2
  shift 2
  export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
  cmake -G Ninja -S "$source" -B "$build" "${toolchain[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_CXX_STANDARD=17 -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_C_COMPILER_LAUNCHER=ccache \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_INSTALL_PREFIX="$root" -DCMAKE_INSTALL_LIBDIR=lib "$@" >"$build.log" 2>&1 ||
    { cat "$build.log" >&2; exit 1; }
}

build() {  # build FOLDER TARGET...
  cmake --build "$1" --target "${@:2}" >>"$1.log" 2>&1 || { tail -n 50 "$1.log" >&2; exit 1; }
}

build_grpc() {
  local source=$work/$crate_file/grpc plugin provider options=()
  plugin=$(command -v grpc_cpp_plugin)
  # gRPC's own plugin does not compile with Debian's protobuf. The code that Debian's plugin generates works.
  sed -i "s|set(_gRPC_CPP_PLUGIN \$<TARGET_FILE:grpc_cpp_plugin>)|set(_gRPC_CPP_PLUGIN $plugin)|" "$source/CMakeLists.txt"
  # Debian's protobuf has no CMake package, so this one uses CMake's own module.
  mkdir -p "$work/protobuf-package"
  echo "include(\${CMAKE_ROOT}/Modules/FindProtobuf.cmake)" >"$work/protobuf-package/ProtobufConfig.cmake"
  for provider in ABSL CARES PROTOBUF RE2 SSL ZLIB; do options+=("-DgRPC_${provider}_PROVIDER=package"); done
  for provider in CPP CSHARP NODE OBJECTIVE_C PHP PYTHON RUBY; do options+=("-DgRPC_BUILD_GRPC_${provider}_PLUGIN=OFF"); done
  # Only the plugins, which are not built, use libprotoc.
  configure "$source" "$work/build-grpc" "${options[@]}" -DgRPC_BUILD_TESTS=OFF -DgRPC_BUILD_CSHARP_EXT=OFF -DgRPC_INSTALL=OFF \
    -DgRPC_USE_SYSTEMD=OFF -DProtobuf_DIR="$work/protobuf-package" -DProtobuf_PROTOC_LIBRARY=unused
  build "$work/build-grpc" grpc++ grpc++_reflection
  mkdir -p "$root/include" "$root/lib"
  cp -r "$source/include/." "$root/include/"
  cp "$work"/build-grpc/lib{grpc++,grpc++_reflection,grpc,gpr,upb,address_sorting}.a "$root/lib/"
  mkdir -p "$root/share/doc/grpc"
  cp "$source/LICENSE" "$source/NOTICE.txt" "$root/share/doc/grpc/"
  printf '%s\n' "$grpc_version" >"$root/share/doc/grpc/version"
}
build_debian() {  # build_debian LIBRARIES TARGET SOURCE OPTION...
  local library=$1 target=$2 source=$work/$3
  shift 3
  configure "$source" "$source-build" "$@"
  build "$source-build" "$target"
  find "$source-build" -name "$library" -exec cp -t "$root/lib/" {} +
}

if [ "$(cat "$root/stamp" 2>/dev/null)" = "$stamp_text" ]; then
  [ "${1:-}" = --built ] || say "gRPC $grpc_version: already built"
  exit 0
fi
[ "${1:-}" != --built ] || exit 1
# An interrupted build continues where it stopped.
say "building gRPC $grpc_version for $arch (15 minutes on two cores)"
rm -rf "$root"
mkdir -p "$work" "$root/lib"
fetch_debian "${highway[@]}"
fetch_debian "${prometheus[@]}"
build_debian libhwy.a hwy highway -DBUILD_TESTING=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
build_debian libprometheus-cpp-core.a core prometheus-cpp -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_COMPRESSION=OFF -DENABLE_TESTING=OFF
for pair in "${independent[@]}"; do fetch_patched "${pair%:*}" "${pair#*:}"; done
build_debian 'libabsl_*.a' all abseil -DBUILD_TESTING=OFF
build_debian libprotobuf.a libprotobuf protobuf -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF
# Debian removes these sources, which scripts make of Unicode's tables.
make -C "$work/re2" -s REBUILD_TABLES=1 re2/perl_groups.cc re2/unicode_casefold.cc re2/unicode_groups.cc
build_debian libre2.a re2 re2 -DRE2_BUILD_TESTING=OFF
build_debian libyaml-cpp.a yaml-cpp yaml-cpp -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF
fetch_grpc
build_grpc
printf '%s\n' "$stamp_text" >"$root/stamp"
rm -rf "$work"
say "gRPC $grpc_version and its libraries: in .deps/grpc$suffix"
