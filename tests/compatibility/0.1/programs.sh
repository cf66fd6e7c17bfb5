#!/bin/sh
# Builds the programs of release 0.1.0 for tests of later versions: sluice, sluice-server, sluice-worker, sluice-relay.
#
# usage: programs.sh FOLDER    (made if it is not there; the programs are then in FOLDER/build/bin)
set -eu
if [ $# -ne 1 ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
tag=v0.1.0
if ! git -C "$here" rev-parse --quiet --verify "refs/tags/$tag" > /dev/null; then
  echo "programs.sh: this clone has no tag $tag; fetch it with: git fetch origin tag $tag" >&2
  exit 1
fi
mkdir -p "$1/source"
folder=$(cd "$1" && pwd)
git -C "$here/../../.." archive "$tag" | tar -x -C "$folder/source"
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$folder/build" --target sluice sluice-server sluice-worker sluice-relay
echo "$folder/build/bin"
