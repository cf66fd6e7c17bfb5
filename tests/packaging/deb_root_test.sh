#!/usr/bin/env bash
# Installs the Debian packages of a release with apt in a root that has nothing but Debian's essential packages, apt and a data
# set, trains the installed example there, upgrades the packages and removes them. Needs root and mmdebstrap.
# usage: deb_root_test.sh RELEASE     a folder that scripts/release.sh made
set -euo pipefail
packages=(sluice sluice-worker)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# The example's data set, which sluice-worker recommends. apt needs nothing else from an archive.
mmdebstrap --quiet --variant=apt --include=dataset-fashion-mnist bookworm "$root"

# The same packages with a higher version.
for name in "${packages[@]}"; do
  dpkg-deb -R "$1/${name}_"*.deb "$work/$name"
  version=$(dpkg-deb -f "$1/${name}_"*.deb Version)
  sed -i -e "s/^Version: .*/Version: $version+1/" -e "s/sluice (= [^)]*)/sluice (= $version+1)/" "$work/$name/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$work/$name" "$root/tmp/$name-newer.deb" >/dev/null
  rm -r "${work:?}/$name"
  cp "$1/${name}_"*.deb "$root/tmp/$name.deb"
done

# The programs find each other through /proc, which is mounted for one command only.
inside() {
  unshare --mount bash -c 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' \
    "$root" "$@"
}
install() {
  inside apt-get install --yes "$@" >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; exit 1; }
}
install /tmp/sluice.deb /tmp/sluice-worker.deb
inside sluice bench exchange --elements 100000 --warmup 1 --repeats 3 --no-baselines
inside sluice run /usr/share/sluice/examples/fashion-mnist.yaml --set workers=2 --set epochs=1 --quiet --report /tmp/report.json
python3 - "$root/tmp/report.json" <<'END'
import json, sys
accuracy = json.load(open(sys.argv[1]))["test_accuracy"]
assert 0.8 < accuracy < 1, f"the installed example reached an accuracy of {accuracy}"
print(f"the installed example reached an accuracy of {accuracy}")
END
install /tmp/sluice-newer.deb /tmp/sluice-worker-newer.deb
for name in "${packages[@]}"; do
  [ "$(inside dpkg-query -W -f '${Version}' "$name")" = "$version+1" ] || { echo "$name was not upgraded" >&2; exit 1; }
done
inside sluice-worker --help >/dev/null
inside apt-get purge --yes "${packages[@]}" >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; exit 1; }
left=$(find "$root" -path "$root/proc" -prune -o -name '*sluice*' -print | grep -v -e "^$root/tmp/" -e "^$root/var/log/" || true)
[ -z "$left" ] || { echo "these files are left after the packages were removed: $left" >&2; exit 1; }
echo "the packages were installed, trained the example, and were upgraded and removed"
