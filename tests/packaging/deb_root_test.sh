#!/usr/bin/env bash
# Installs the Debian package in a root that has nothing but Debian's essential packages, uses it, upgrades it and removes it.
# Needs root and mmdebstrap. usage: deb_root_test.sh PACKAGE.deb
set -euo pipefail
package=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mmdebstrap --quiet --variant=essential bookworm "$root"

# The same package with a higher version.
dpkg-deb -R "$package" "$work/newer"
version=$(dpkg-deb -f "$package" Version)
sed -i "s/^Version: .*/Version: $version+1/" "$work/newer/DEBIAN/control"
dpkg-deb --root-owner-group --build "$work/newer" "$work/newer.deb" >/dev/null
cp "$package" "$root/tmp/first.deb"
cp "$work/newer.deb" "$root/tmp/newer.deb"

# The programs find each other through /proc, which is mounted for one command only.
inside() {
  unshare --mount bash -c 'mount -t proc proc "$0/proc" && exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' \
    "$root" "$@"
}
use() {
  inside sluice validate /usr/share/sluice/examples/fashion-mnist.yaml >/dev/null
  inside sluice bench exchange --elements 100000 --warmup 1 --repeats 3 --no-baselines
}
inside dpkg -i /tmp/first.deb
use
inside dpkg -i /tmp/newer.deb
[ "$(inside dpkg-query -W -f '${Version}' sluice)" = "$version+1" ]
use
inside dpkg --purge sluice
left=$(find "$root" -path "$root/proc" -prune -o -name '*sluice*' -print | grep -v "^$root/tmp/" || true)
[ -z "$left" ] || { echo "these files are left after the package was removed: $left" >&2; exit 1; }
echo "the package was installed, used, upgraded and removed"
