#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles base/ and compress/ for ARM (aarch64) and runs their tests in QEMU's user mode. Also checks that the checksum uses the
# processor's instruction. On Debian 12, it installs the cross compiler and QEMU, and puts ARM's libraries into .deps/arm64.
# usage: scripts/test-arm.sh
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(g++-aarch64-linux-gnu qemu-user-static mmdebstrap)
libraries=libabsl-dev,libhwy-dev,libgtest-dev,libgmock-dev,nlohmann-json3-dev,libc6-dev,libstdc++6
root=.deps/arm64 build=build/arm64
say() { printf 'test-arm: %s\n' "$*"; }

scripts/setup.sh --packages
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
  # Unpacks the packages and runs none of their programs.
  mmdebstrap --quiet --architectures=arm64 --variant=extract --include="$libraries" bookworm "$root"
  echo "$libraries" >"$root/stamp"
fi

cmake -S tests/arm -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE=aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --build "$build"
# QEMU writes each instruction that it translates, and so each that a test executes.
QEMU_LOG=in_asm QEMU_LOG_FILENAME=$build/executed qemu-aarch64-static -L "$root" "$build/bin/base_tests" --gtest_filter='Crc32c.*'
grep -q 'crc32cx' "$build/executed" || { say "the tests of CRC-32C executed no instruction crc32cx: is the check in base/crc32c.cc right?" >&2; exit 1; }
ctest --test-dir "$build" --output-on-failure
