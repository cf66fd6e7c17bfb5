#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prepares Debian 12 on x86-64 to compile for ARM (cmake/aarch64.cmake): installs the cross compiler and QEMU, and unpacks ARM's
# libraries and Python into .deps/arm64. Idempotent; delete that folder to get newer packages.
# usage: scripts/arm64.sh
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(g++-aarch64-linux-gnu qemu-user-static mmdebstrap)
libraries=libabsl-dev,libprotobuf-dev,libre2-dev,libc-ares-dev,libssl-dev,zlib1g-dev,libpng-dev,libturbojpeg0-dev,libyaml-cpp-dev,libhwy-dev
libraries+=,prometheus-cpp-dev,libcli11-dev,nlohmann-json3-dev,libgtest-dev,libgmock-dev,libc6-dev,libstdc++6,libpython3-dev,python3-minimal
root=.deps/arm64
say() { printf 'arm64: %s\n' "$*"; }

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" != 0 ]; then
  say "installing ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ "$(cat "$root/stamp" 2>/dev/null)" != "$libraries" ]; then
  say "fetching ARM's libraries"
  rm -rf "$root"
  mkdir -p .deps
  # Unpacks the packages and runs none of their programs.
  mmdebstrap --quiet --architectures=arm64 --variant=extract --include="$libraries" bookworm "$root"
  echo "$libraries" >"$root/stamp"
fi
