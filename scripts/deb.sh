#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes Debian packages of installed trees: `sluice` of the programs, `libsluiceX.Y` of the shared library, whose soname has this
# version, `libsluice-dev` of what compilers need, and `sluice-worker` of the worker and LibTorch. Adds manual pages as Debian
# wants them, the licences, a systemd unit and the dependencies on Debian's libraries.
# usage: scripts/deb.sh VERSION DIR TREE LIBRARY_TREE DEVELOPMENT_TREE [WORKER_TREE]     (scripts/release.sh calls it)
# SOURCE_DATE_EPOCH is the time of all files. DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 out=$2 tree=$3 library_tree=$4 development_tree=$5 worker_tree=${6:-}
maintainer="${DEBFULLNAME:-Sluice maintainers} <${DEBEMAIL:-root@localhost}>"
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# dpkg-shlibdeps reads this file only to see where it is.
mkdir "$stage/debian"
printf 'Source: sluice\n\nPackage: sluice\nArchitecture: any\n' >"$stage/debian/control"

# package NAME TREE: the field Depends starts with the caller's variable `depends`, `level` is that of xz. Further fields and the description come
# from standard input. Libraries that other packages link need what Debian's linker and dpkg-shlibdeps read.
package() {
  local name=$1 tree=$2 package=$stage/$1 needed= file files
  mkdir -p "$package/DEBIAN" "$package/usr/share/doc/$name" "$package/usr/share/lintian/overrides"
  for file in bin include lib share; do
    [ ! -e "$tree/$file" ] || cp -r "$tree/$file" "$package/usr/"
  done
  cp "$tree/LICENSES" "$package/usr/share/doc/$name/copyright"
  printf "$name: %s\n" "${overrides[@]}" >"$package/usr/share/lintian/overrides/$name"
  [ ! -e "$package/usr/share/man" ] || gzip -9 -n "$package"/usr/share/man/man1/*.1
  printf 'sluice (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of this version describes the changes.\n\n -- %s  %s\n' "$version" \
    "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9 -n >"$package/usr/share/doc/$name/changelog.gz"
  # The package's own libraries belong to no package yet, so nothing is known about them.
  mapfile -t files < <(cd "$stage" && find "$name" -path '*/usr/bin/*' -o -name '*.so*' -type f | LC_ALL=C sort)
  if [ "${#files[@]}" != 0 ]; then
    needed=$(cd "$stage" && dpkg-shlibdeps --ignore-missing-info "-l$name/usr/lib/sluice" -O "${files[@]}" 2>"$stage/shlibdeps.log" |
      sed -n 's/^shlibs:Depends=//p')
    [ -n "$needed" ] || { cat "$stage/shlibdeps.log" >&2; exit 1; }
  fi
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$name" "$version" "$architecture" "$maintainer"
    printf 'Installed-Size: %s\n' "$(du -k -s --apparent-size "$package/usr" | cut -f1)"
    printf 'Depends: %s%s\nPriority: optional\n' "$depends" "$needed"
    cat
  } >"$package/DEBIAN/control"
  (cd "$package" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  chmod -R u=rwX,go=rX "$package"
  dpkg-deb --root-owner-group -Zxz "-z$level" --build "$package" "$out/${name}_${version}_$architecture.deb" >/dev/null
}

mkdir -p "$stage/sluice/usr/lib/systemd/system"
cp deploy/systemd/sluice-server@.service "$stage/sluice/usr/lib/systemd/system/"
# The package serves outside of Debian, so it contains its libraries and the full texts of their licences.
overrides=('embedded-library *' copyright-file-contains-full-apache-2-license)
depends= level=6
package sluice "$tree" <<'END'
Section: science
Suggests: sluice-worker
Description: parameter server that compresses gradients
 Sluice trains models on several machines with slow networks. Servers keep the
 parameters of a job, and workers send them compressed gradients.
 .
 This package has the servers (sluice-server, sluice-relay) and the command
 sluice, which starts and observes jobs. A job brings its own worker program,
 or uses sluice-worker.
END

triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
soname=$(objdump -p "$library_tree/lib/$triplet/libsluice.so.${version%%~*}" | sed -n 's/^ *SONAME *//p')
soversion=${soname#libsluice.so.}
library=libsluice$soversion
mkdir -p "$stage/$library/DEBIAN"
# A program that links this version needs this version or a later one of the package.
printf 'libsluice %s %s (>= %s)\n' "$soversion" "$library" "$version" >"$stage/$library/DEBIAN/shlibs"
printf 'activate-noawait ldconfig\n' >"$stage/$library/DEBIAN/triggers"
overrides=('embedded-library *' copyright-file-contains-full-apache-2-license)
package "$library" "$library_tree" <<'END'
Section: libs
Multi-Arch: same
Description: parameter server that compresses gradients - library
 Sluice trains models on several machines with slow networks. Servers keep the
 parameters of a job, and workers send them compressed gradients.
 .
 This package has the shared library for programs that take part in a job or
 compress gradients. It contains gRPC.
END
overrides=(copyright-file-contains-full-apache-2-license)
depends="$library (= $version)"
package libsluice-dev "$development_tree" <<'END'
Section: libdevel
Multi-Arch: same
Recommends: libabsl-dev, libhwy-dev
Suggests: pkg-config, sluice
Description: parameter server that compresses gradients - development files
 Sluice trains models on several machines with slow networks. Servers keep the
 parameters of a job, and workers send them compressed gradients.
 .
 This package has the headers of the library and its files for pkg-config and
 for CMake (find_package(Sluice), component client). The component compress, the
 codecs as a static library with internal headers, also needs the recommended
 packages.
END

[ -n "$worker_tree" ] || exit 0

# LibTorch's libraries find each other beside themselves and stay as they are in its wheel. Its licence contains that of a compiler's library.
overrides=('embedded-library *' copyright-file-contains-full-apache-2-license)
overrides+=('custom-library-search-path *' 'unstripped-binary-or-object *' copyright-file-contains-full-gpl-license)
depends="sluice (= $version), " level=1  # A higher level takes minutes for LibTorch.
package sluice-worker "$worker_tree" <<'END'
Section: science
Recommends: dataset-fashion-mnist
Description: worker of the parameter server Sluice, with LibTorch
 Sluice trains models on several machines with slow networks. Servers keep the
 parameters of a job, and workers send them compressed gradients.
 .
 This package has sluice-worker, which trains the models that Sluice has, and
 the LibTorch that it uses. It computes on processors, without GPUs.
 /usr/share/sluice/examples has jobs; the first one learns the data set
 Fashion-MNIST.
END
