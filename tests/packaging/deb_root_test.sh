#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of a release with apt in a root that has nothing but Debian's essential packages, apt, compilers
# and a data set. There, it compiles another project against the library, trains with its program and with the installed
# example, upgrades the packages and removes them. In a root of a newer suite of Debian, the tarball's servers serve a job of the
# same program. Needs root, mmdebstrap and the network. Without the package sluice-worker, the example is left out.
# usage: deb_root_test.sh RELEASE     a folder that scripts/release.sh made
set -euo pipefail
release=$(realpath "$1")
cd "$(dirname "$0")"
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { printf 'deb_root_test: %s\n' "$*" >&2; exit 1; }

# The names of the packages in the release, such as libsluice0.2.
packages=()
for file in "$release"/*.deb; do packages+=("$(dpkg-deb -f "$file" Package)"); done
has() { [[ " ${packages[*]} " == *" $1 "* ]]; }
library=$(printf '%s\n' "${packages[@]}" | grep '^libsluice[0-9]') || fail "$release has no package of the shared library"
for name in sluice libsluice-dev; do has "$name" || fail "$release has no package $name"; done

root=$work/root
# The example's data set, which sluice-worker recommends, and what the other project needs.
mmdebstrap --quiet --variant=apt --include=dataset-fashion-mnist,g++,cmake,make,pkg-config bookworm "$root"

# The same packages with a higher version.
for name in "${packages[@]}"; do
  dpkg-deb -R "$release/${name}_"*.deb "$work/$name"
  version=$(dpkg-deb -f "$release/${name}_"*.deb Version)
  sed -i -e "s/^Version: .*/Version: $version+1/" -e "s/\(sluice[0-9.]*\) (= [^)]*)/\1 (= $version+1)/" "$work/$name/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$work/$name" "$root/tmp/$name-newer.deb" >/dev/null
  rm -r "${work:?}/$name"
  cp "$release/${name}_"*.deb "$root/tmp/$name.deb"
done

# The programs find each other through /proc, which is mounted for one command only.
inside_of() {  # inside_of ROOT COMMAND...
  exec unshare --mount bash -c 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' "$@"
}
inside() { (inside_of "$root" "$@"); }
quietly() { inside "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "this command failed in the root of bookworm: $*"; }; }
refused() {  # refused TEXT COMMAND...: the command fails and says TEXT
  local text=$1
  shift
  ! inside "$@" >"$work/log" 2>&1 || fail "this command should have failed in the root: $*"
  tr -s ' \n' ' ' <"$work/log" | grep -qF "$text" || { cat "$work/log" >&2; fail "this command did not say '$text': $*"; }
}
files() { printf "/tmp/%s$1.deb\n" "${packages[@]}"; }

quietly apt-get update
# shellcheck disable=SC2046
quietly apt-get install --yes $(files "")
inside sluice bench exchange --elements 100000 --warmup 1 --repeats 3 --no-baselines

# Another project finds the library with CMake and with pkg-config.
expected="100 large values arrived, compressed: yes"
cp -r external "$root/tmp/external"
quietly cmake -S /tmp/external -B /tmp/build "-DWANTED=client;server;compress"
quietly cmake --build /tmp/build
quietly sh -c 'g++ -std=c++20 /tmp/external/main.cc $(pkg-config --cflags --libs sluice) -o /tmp/by_pkg_config'
programs_work() {
  local program
  for program in /tmp/build/external /tmp/by_pkg_config; do
    [ "$(inside "$program")" = "$expected" ] || fail "$program did not receive the values $1"
  done
}
programs_work "after the installation"
inside /tmp/build/compress_alone | grep -q "fewer bytes" || fail "the example with the codecs alone printed no result"
refused "no component 'torch'" cmake -S /tmp/external -B /tmp/refused "-DWANTED=client;server;compress;torch"

printf 'name: external\nworkers: 2\nshards: 2\ncompression: {uplink: int8, downlink: int8}\n' >"$root/tmp/job.yaml"
trained() {  # trained WHERE: both workers of the other project trained with servers
  local rank
  for rank in 0 1; do
    [ "$(cat "$root/tmp/result$rank" 2>/dev/null)" = "trained with servers" ] || fail "worker $rank of the other project did not train with servers $1"
    rm "$root/tmp/result$rank"
  done
}
quietly env OUT=/tmp/result sluice run /tmp/job.yaml -- /tmp/build/train
trained "of bookworm"

if has sluice-worker; then
  inside sluice run /usr/share/sluice/examples/fashion-mnist.yaml --set workers=2 --set epochs=1 --quiet --report /tmp/report.json
  python3 - "$root/tmp/report.json" <<'END_OF_PROGRAM'
import json, sys
accuracy = json.load(open(sys.argv[1]))["test_accuracy"]
assert 0.8 < accuracy < 1, f"the installed example reached an accuracy of {accuracy}"
print(f"the installed example reached an accuracy of {accuracy}")
END_OF_PROGRAM
fi

# The tarball's servers in a root of a newer suite, with workers of the other project in the first root.
other=$work/other
mmdebstrap --quiet --variant=essential trixie "$other"
tar -xf "$release"/sluice-*.tar.gz -C "$other/opt"
bin=$(cd "$other" && echo opt/sluice-*/bin)
cp "$root/tmp/job.yaml" "$other/tmp/"
(inside_of "$other" "/$bin/sluice" bench exchange --elements 100000 --warmup 1 --repeats 3 --no-baselines)
mapfile -t ports < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
for one in sockets: print(one.getsockname()[1])')
server() {  # server SHARD FLAG...
  inside_of "$other" timeout 120 "/$bin/sluice-server" --job /tmp/job.yaml --shard "$1" --listen "127.0.0.1:${ports[$1]}" "${@:2}" >"$work/server$1.log" 2>&1
}
server 0 --http-listen off & pids+=($!)
server 1 --coordinator "127.0.0.1:${ports[0]}" & pids+=($!)
for rank in 0 1; do
  inside timeout 120 env SLUICE_JOB=/tmp/job.yaml "SLUICE_COORDINATOR=127.0.0.1:${ports[0]}" RANK=$rank OUT=/tmp/result /tmp/build/train \
    >"$work/worker$rank.log" 2>&1 & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || { tail -n 20 "$work"/{server,worker}?.log >&2; fail "a process of the job with servers of trixie failed"; }; done
trained "of trixie"

# A part of an upgrade alone would leave headers of another version than the library.
refused "unmet dependencies" apt-get install --yes /tmp/libsluice-dev-newer.deb
# shellcheck disable=SC2046
quietly apt-get install --yes $(files -newer)
for name in "${packages[@]}"; do
  [ "$(inside dpkg-query -W -f '${Version}' "$name")" = "$version+1" ] || fail "$name was not upgraded"
done
! has sluice-worker || quietly sluice-worker --help
programs_work "after the upgrade"
quietly apt-get purge --yes "${packages[@]}"
refused "libsluice.so.${library#libsluice}: cannot open shared object file" /tmp/build/external
left=$(find "$root" -path "$root/proc" -prune -o -name '*sluice*' -print | grep -v -e "^$root/tmp/" -e "^$root/var/log/" || true)
[ -z "$left" ] || fail "these files are left after the packages were removed: $left"
echo "the packages ${packages[*]} were installed, used, upgraded and removed, and the tarball served a job in trixie"
