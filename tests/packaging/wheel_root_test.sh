#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel of a release in a root of Debian's unstable suite, which has a newer Python and a newer glibc than Debian 12, and
# trains there on two ranks with PyTorch. Needs root, mmdebstrap, the network, and .deps/python, whose NVIDIA libraries PyTorch loads.
# usage: wheel_root_test.sh WHEEL
set -euo pipefail
wheel=$(realpath "${1:?usage: wheel_root_test.sh WHEEL}")
cd "$(dirname "$0")/../.."
packages=$PWD/.deps/python/lib/python3.11/site-packages
torch=$(sed -n 's/ .*//; /^torch==/p' scripts/torch-wheels.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'wheel_root_test: %s\n' "$*" >&2; exit 1; }
[ -e "$packages/nvidia" ] || fail "there is no PyTorch in .deps/python: scripts/setup.sh --python"

# Copies of the suite's lists are often older than their validity.
root=$work/root
mmdebstrap --quiet --variant=apt --aptopt='Acquire::Check-Valid-Until "false"' --include=ca-certificates,libstdc++6,python3.14-venv sid "$root"
cp "$wheel" tests/packaging/train_two_ranks.py "$root/tmp/"
# The mounts end with the command. The folder of NVIDIA's libraries is too large to copy.
inside() {  # inside COMMAND...
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mkdir -p "$0/nvidia" && mount --bind "$1" "$0/nvidia" &&
    shift && exec chroot "$0" /usr/bin/env -i PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root timeout 900 "$@"' \
    "$root" "$packages/nvidia" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "this command failed in the root: $*"; }
}
cp /etc/resolv.conf "$root/etc/"
# pip trusts the package index that this machine trusts.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
inside python3.14 -m venv /opt/venv
inside pip install --quiet --no-cache-dir "/tmp/$(basename "$wheel")"
inside python -c 'import numpy, sluice.compress; assert sluice.compress.error(numpy.linspace(-1, 1, 500, dtype=numpy.float32), "int8").bits_per_element < 9'
inside pip install --quiet --no-cache-dir --no-deps "$torch"
inside pip install --quiet --no-cache-dir filelock fsspec jinja2 networkx sympy typing_extensions setuptools
inside sh -c 'ln -s /nvidia "$(python -c "import sysconfig; print(sysconfig.get_paths()[\"purelib\"])")/nvidia"'
inside torchrun --nproc-per-node 2 /tmp/train_two_ranks.py
[ "$(grep -c '^trained$' "$work/log")" = 2 ] || { cat "$work/log" >&2; fail "not both ranks trained"; }
inside python --version
echo "the wheel trains with $(cat "$work/log") and glibc $(inside ldd --version; sed -n 's/^ldd .* //p' "$work/log")"
