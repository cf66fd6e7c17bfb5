#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the documentation site into build/site and checks it: every link and anchor, and that no page loads anything from another host.
# MkDocs and its theme go into .deps/docs, once.
#
# usage: scripts/docs.sh [--install | --serve [HOST:PORT]]
#   --install only fetches MkDocs; it exits with 1 if MkDocs cannot be had here
#   --serve   shows the site at HOST:PORT (127.0.0.1:8000) and builds it again when a page changes
set -euo pipefail
cd "$(dirname "$0")/.."

root=.deps/docs wheels=scripts/docs-wheels.txt python=/usr/bin/python3
say() { printf 'docs: %s\n' "$*"; }
mkdocs() { NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root "$python" -m mkdocs "$@"; }

install_mkdocs() {
  if cmp -s "$wheels" "$root/stamp"; then say "MkDocs: there"; return; fi
  say "fetching MkDocs and its theme (15 MB)"
  rm -rf "$root"
  # Pip compiles the modules here, because later runs write no bytecode.
  if "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes \
      --no-warn-script-location --target "$root" --requirement "$wheels"; then
    cp "$wheels" "$root/stamp"
    say "MkDocs: in $root"
  else
    rm -rf "$root"
    say "no MkDocs for this machine's $python: $wheels is for CPython 3.11 on x86-64, and a package index must be reachable" >&2
    return 1
  fi
}

case "${1:-}" in
  "")
    install_mkdocs
    mkdocs build --strict
    "$python" tools/check_site.py build/site
    ;;
  --install) install_mkdocs ;;
  --serve)
    install_mkdocs
    mkdocs serve --dev-addr "${2:-127.0.0.1:8000}"
    ;;
  *) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
