#!/usr/bin/env bash
# Builds Sluice and runs its tests. usage: scripts/test.sh [PRESET]   (default: release)
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
scripts/build.sh "$preset"
ctest --preset "$preset" --parallel "$(nproc)" --output-on-failure
