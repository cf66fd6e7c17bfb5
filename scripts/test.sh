#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Sluice and runs its tests. usage: scripts/test.sh [PRESET]   (default: release)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
scripts/build.sh "$preset"
# Tests of real processes mostly wait for each other, so the release preset runs 1.5 tests per core.
jobs=$(nproc); if [ "$preset" = release ]; then jobs=$(((3 * jobs + 1) / 2)); fi
ctest --preset "$preset" --parallel "$jobs" --output-on-failure
