#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares proto/ with the schema of each release by `buf breaking`, a second opinion beside tools/check_protos.py. It knows more
# kinds of changes, but not that a method may be removed or a key renamed, so it checks numbers, types and reservations. The first
# run installs buf into .deps/buf. Needs the history of git.
# usage: tools/check_breaking.sh
set -euo pipefail
cd "$(dirname "$0")/.."
root=.deps/buf wheels=scripts/buf-wheels.txt
config='{"version": "v1", "breaking": {"use": ["WIRE", "FIELD_SAME_TYPE", "FIELD_SAME_CARDINALITY", "FIELD_NO_DELETE_UNLESS_NAME_RESERVED",
  "ENUM_VALUE_NO_DELETE_UNLESS_NAME_RESERVED"]}}'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'check_breaking: %s\n' "$*"; }

if ! cmp -s "$wheels" "$root/stamp"; then
  rm -rf "$root"
  say "fetching buf (15 MB)"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes \
    --target "$root" --requirement "$wheels"
  cp "$wheels" "$root/stamp"
fi
# compare NEW OLD: folders of schemas. buf keeps no cache in the user's home.
compare() { (cd "$1" && HOME=$work BUF_CACHE_DIR=$work/cache "$buf" breaking . --against "$2" --config "$config"); }
buf=$PWD/$root/bin/buf

# The check notices what it is for.
planted() {  # planted FILE SED-EXPRESSION TEXT: after this change of the file, buf says TEXT
  rm -rf "$work/planted"
  cp -r proto "$work/planted"
  sed -i "$2" "$work/planted/sluice/v1/$1"
  ! cmp -s "$work/planted/sluice/v1/$1" "proto/sluice/v1/$1" || { say "'$2' changes nothing in $1: choose another change to plant" >&2; exit 1; }
  ! compare "$work/planted" "$PWD/proto" >"$work/said" || { say "'$2' in $1 was not noticed" >&2; exit 1; }
  grep -q "$3" "$work/said" || { say "'$2' in $1 was reported as something else: $(cat "$work/said")" >&2; exit 1; }
}
planted job.proto '/optional uint64 log_interval = 26/s/uint64/uint32/' 'changed type'
planted job.proto '/optional uint64 log_interval = 26/s/= 26/= 2600/' 'was deleted'
planted job.proto '/optional uint64 log_interval = 26/s/optional/repeated/' 'changed cardinality'

releases=(tests/compatibility/*/programs.sh)
for file in "${releases[@]}"; do
  commit=$(sed -n 's/^release=\([0-9a-f]\{40\}\).*/\1/p' "$file")
  git rev-parse --quiet --verify "$commit^{commit}" >/dev/null || {
    say "this clone lacks commit $commit of $file; fetch all of the history with: git fetch --unshallow" >&2; exit 1; }
  mkdir "$work/$commit"
  git archive "$commit" proto | tar -x -C "$work/$commit"
  compare proto "$work/$commit/proto" || { say "proto/ is not compatible with the release of $file (lines above)" >&2; exit 1; }
done
say "proto/ is compatible with ${#releases[@]} release(s), and three planted changes are noticed"
