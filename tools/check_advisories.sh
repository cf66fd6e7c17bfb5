#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Looks for advisories about the gRPC of a release that SECURITY.md does not name. Uses pip-audit and the database of PyPI, because the
# Python package grpcio contains the same C++ code under the same version numbers.
# Exits with 0 if all are named, 1 if one is not, 3 if no database is reachable.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^grpc_version=//p' scripts/grpc.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'grpcio==%s\n' "$version" >"$work/requirements.txt"
unreachable() { echo "advisories about gRPC $version were not checked: $1"; exit 3; }
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.1 || unreachable "pip-audit cannot be installed"
# It exits with 1 if it finds something.
timeout 120 "$work/venv/bin/pip-audit" --requirement "$work/requirements.txt" --no-deps --disable-pip --progress-spinner off --aliases on \
  --desc off --format json >"$work/found.json" 2>"$work/errors" || true
python3 tools/advisories.py "$work/found.json" SECURITY.md || {
  code=$?; [ "$code" != 3 ] || unreachable "pip-audit found no entry for the package"; exit "$code"; }
