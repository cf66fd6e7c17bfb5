#!/usr/bin/env bash
# Makes the Debian package `sluice` of an installed tree of programs: adds manual pages as Debian wants them, the licences, a
# systemd unit and the dependency on glibc. usage: scripts/deb.sh TREE VERSION DIR     (scripts/release.sh calls it)
# SOURCE_DATE_EPOCH is the time of all files. DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$1 version=$2 out=$3
maintainer="${DEBFULLNAME:-Sluice maintainers} <${DEBEMAIL:-root@localhost}>"
architecture=$(dpkg --print-architecture)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
package=$stage/package
mkdir -p "$package"/usr/share/{doc/sluice,lintian/overrides} "$package/DEBIAN" "$package/usr/lib/systemd/system" "$stage/debian"
cp -r "$tree/bin" "$tree/share" "$package/usr/"
cp deploy/systemd/sluice-server@.service "$package/usr/lib/systemd/system/"
# The package serves outside of Debian, so it contains its libraries and the full texts of their licences.
printf 'sluice: %s\n' 'embedded-library *' copyright-file-contains-full-apache-2-license >"$package/usr/share/lintian/overrides/sluice"
cp "$tree/LICENSES" "$package/usr/share/doc/sluice/copyright"
gzip -9 -n "$package"/usr/share/man/man1/*.1
printf 'sluice (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of this version describes the changes.\n\n -- %s  %s\n' "$version" "$maintainer" \
  "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9 -n >"$package/usr/share/doc/sluice/changelog.gz"

# dpkg-shlibdeps reads this file only to see where it is.
printf 'Source: sluice\n\nPackage: sluice\nArchitecture: any\n' >"$stage/debian/control"
depends=$(cd "$stage" && dpkg-shlibdeps -O package/usr/bin/* | sed -n 's/^shlibs:Depends=//p')
cat >"$package/DEBIAN/control" <<END
Package: sluice
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$package/usr" | cut -f1)
Depends: $depends
Section: science
Priority: optional
Description: parameter server that compresses gradients
 Sluice trains models on several machines with slow networks. Servers keep the
 parameters of a job, and workers send them compressed gradients.
 .
 This package has the servers (sluice-server, sluice-relay) and the command
 sluice, which starts and observes jobs. A job brings its own worker program.
END
(cd "$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$package"
dpkg-deb --root-owner-group -Zxz --build "$package" "$out/sluice_${version}_$architecture.deb" >/dev/null
