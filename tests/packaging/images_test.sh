#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Uses the images that deploy/docker/build.sh made, as a cluster would: as the image's user, with a read-only root and an empty /tmp.
# Checks labels, licences and bills of materials, runs the servers' programs, trains the trial job in sluice-worker, and, if there is
# an image sluice-python, trains on two ranks with PyTorch. Needs root and buildah.
# usage: images_test.sh IMAGES     the folder with sluice-server.tar, sluice-worker.tar and perhaps sluice-python.tar
set -euo pipefail
images=$(realpath "$1")
cd "$(dirname "$0")"
work=$(mktemp -d) containers=()
b() { buildah --storage-driver overlay "$@"; }
trap 'for one in "${containers[@]}"; do b rm "$one" >/dev/null; done; rm -rf "$work"' EXIT
fail() { printf 'images_test: %s\n' "$*" >&2; exit 1; }
export BUILDAH_ISOLATION=chroot

root=''
open_image() {  # open_image NAME: sets `root`
  local container
  container=$(b from --quiet "oci-archive:$images/$1.tar")
  containers+=("$container")
  root=$(b mount "$container")
  b inspect --type container "$container" >"$work/config.json"
  python3 - "$1" "$work/config.json" <<'END_OF_PROGRAM'
import json, sys
name, config = sys.argv[1], json.load(open(sys.argv[2]))["OCIv1"]["config"]
assert config["User"] == "10001:10001", f"{name} runs as {config['User']}"
labels = {key.rpartition(".")[2]: text for key, text in config["Labels"].items()}
assert labels["title"] == name and labels["licenses"] == "Apache-2.0" and labels["version"], f"{name} has the labels {labels}"
END_OF_PROGRAM
}
# The mounts end with the command.
inside() {  # inside COMMAND...
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs tmpfs "$0/tmp" && mount -t proc proc "$0/proc" &&
    mount --rbind /dev "$0/dev" && exec chroot --userspec=10001:10001 "$0" /usr/bin/env -i HOME=/tmp \
    PATH=/opt/sluice/bin:/usr/local/bin:/usr/bin:/bin timeout 300 "$@"' "$root" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "this command failed: $*"; }
}
documented() {  # documented FOLDER: of the image
  local sbom
  [ -s "$root/$1/LICENSES" ] || [ -s "$root/$1/licenses/LICENSES" ] || fail "$1 has no licences"
  sbom=$(find "$root/$1" -name '*.spdx.json')
  python3 -c 'import json, sys; assert "grpc" in {one["name"] for one in json.load(open(sys.argv[1]))["packages"]}' "$sbom" || fail "$1 has no bill of materials"
}

open_image sluice-server
documented usr/share/doc/sluice
for program in sluice sluice-server sluice-relay; do inside "$program" --version; done
inside sluice bench exchange --elements 100000 --warmup 1 --repeats 3 --no-baselines
open_image sluice-worker
documented usr/share/doc/sluice-worker
inside sh -c 'cd /tmp && sluice run /usr/share/sluice/trial.yaml --quiet'
used="sluice-server and sluice-worker"
if [ -e "$images/sluice-python.tar" ]; then
  open_image sluice-python
  documented "$(cd "$root" && echo opt/sluice/lib/python3.*/site-packages/sluice_train-*.dist-info)"
  # Through standard input, because the root is read-only.
  inside sh -c 'cat >/tmp/train.py && torchrun --nproc-per-node 2 /tmp/train.py' <train_two_ranks.py
  [ "$(grep -c '^trained$' "$work/log")" = 2 ] || { cat "$work/log" >&2; fail "not both ranks trained"; }
  used="sluice-server, sluice-worker and sluice-python"
fi
echo "the images $used work without root and with a read-only root"
