#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles base/ and compress/ for ARM (aarch64) and runs their tests in QEMU's user mode. Also checks that the checksum uses the
# processor's instruction. For Debian 12 on x86-64 (scripts/arm64.sh).
# usage: scripts/test-arm.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=.deps/arm64 build=build/arm64
say() { printf 'test-arm: %s\n' "$*"; }

scripts/setup.sh --packages
scripts/arm64.sh
cmake -S tests/arm -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --build "$build"
# QEMU writes each instruction that it translates, and so each that a test executes.
QEMU_LOG=in_asm QEMU_LOG_FILENAME=$build/executed qemu-aarch64-static -L "$root" "$build/bin/base_tests" --gtest_filter='Crc32c.*'
grep -q 'crc32cx' "$build/executed" || { say "the tests of CRC-32C executed no instruction crc32cx: is the check in base/crc32c.cc right?" >&2; exit 1; }
ctest --test-dir "$build" --output-on-failure
