#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of release 0.1.0 for tests of later versions: sluice, sluice-server, sluice-worker, sluice-relay.
#
# usage: programs.sh FOLDER    (made if it is not there; the programs are then in FOLDER/build/bin)
set -eu
if [ $# -ne 1 ]; then
  sed -n '3,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
release=275611155eb96591eacf17ebfc5e7ed34399f7ca  # The commit that tag v0.1.0 names: a clone may lack the tag.
if ! git -C "$here" rev-parse --quiet --verify "$release^{commit}" > /dev/null; then
  echo "programs.sh: this clone lacks the commit of release 0.1.0; fetch all of the history with: git fetch --unshallow" >&2
  exit 1
fi
mkdir -p "$1/source"
folder=$(cd "$1" && pwd)
git -C "$here/../../.." archive "$release" | tar -x -C "$folder/source"
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$folder/build" --target sluice sluice-server sluice-worker sluice-relay
echo "$folder/build/bin"
