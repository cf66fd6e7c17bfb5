#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build and test dependencies of Sluice on Debian 12: Debian's packages, LibTorch from its PyPI wheel into
# .deps/, and beside it TensorBoard, with which one test reads our event files.
# Idempotent: existing parts are left alone. On another distribution it lists the missing packages and stops.
#
# usage: scripts/setup.sh [--packages | --grpc | --python | --nvcc | --cuda]
#   --packages installs only Debian's packages, which is all that `pip install .` needs
#   --grpc does that, and builds the gRPC that a release contains into .deps/grpc (preset `static`); options of scripts/grpc.sh can follow
#   --python does that, installs the text of an example, and makes .deps/python, an environment with PyTorch for the tests of python/
#   --nvcc also unpacks CUDA's compiler into .deps/cuda; it needs no GPU (-DSLUICE_CUDA=ON -DSLUICE_TORCH=OFF)
#   --cuda does that and also unpacks LibTorch's GPU libraries (preset `cuda`)
# LIBTORCH_ROOT=DIR: use the LibTorch (2.11) unpacked there instead of downloading one.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache git
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev libhwy-dev
  libyaml-cpp-dev prometheus-cpp-dev pkg-config zlib1g-dev libpng-dev libturbojpeg0-dev libssl-dev openssl
  libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev
  clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev
  python3 python3-dev python3-pip python3-venv python3-yaml python3-jsonschema
  python3-torch python3-torchvision python3-numpy python3-matplotlib iproute2 groff-base dataset-fashion-mnist
)
torch_version=2.11.0
stamp_text="torch $torch_version, cuda runtime 13.0.96, cupti 13.0.85"
want_cuda=no want_nvcc=no want_grpc=no want_python=no want_libtorch=yes
case "${1:-}" in
  "") ;;
  --packages) want_libtorch=no ;;
  --grpc) want_libtorch=no want_grpc=yes packages+=(libre2-dev libc-ares-dev dpkg-dev make perl unicode-data) ;;
  --python) want_libtorch=no want_python=yes packages+=(bible-kjv bible-kjv-text) ;;
  --nvcc) want_nvcc=yes ;;
  --cuda) want_cuda=yes want_nvcc=yes ;;
  *) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*"; }

# On Debian 12 the release pins the packages' versions. Elsewhere this only checks for them.
install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ "${#missing[@]}" = 0 ]; then say "Debian packages: all ${#packages[@]} installed"; return; fi
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      say "these packages are missing, and neither root nor sudo is available to install them:" >&2
      say "  apt-get install ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

name_what_is_missing() {
  local missing=() tool header found folder
  for tool in g++ cmake ninja ccache protoc grpc_cpp_plugin python3; do
    command -v "$tool" >/dev/null || missing+=("program $tool")
  done
  for header in absl/status/statusor.h hwy/highway.h grpcpp/grpcpp.h google/protobuf/message.h yaml-cpp/yaml.h prometheus/registry.h \
                CivetServer.h zlib.h png.h turbojpeg.h openssl/evp.h CLI/CLI.hpp nlohmann/json.hpp gtest/gtest.h; do
    found=no
    for folder in /usr/include /usr/local/include; do [ -e "$folder/$header" ] && found=yes; done
    [ "$found" = yes ] || missing+=("header $header")
  done
  if [ "${#missing[@]}" != 0 ]; then
    say "this is not Debian 12, so this script installs nothing. Missing here:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    say "Install those (gRPC >= 1.51, protobuf >= 3.21, Abseil >= 20220623, Highway >= 1.0.3, g++ >= 12, CMake >= 3.25), then run this again." >&2
    exit 1
  fi
  say "not Debian 12, but all dependencies that were checked are installed"
}

# Unpacks the wheels with python3's zipfile and installs no Python package.
install_libtorch() {
  local root=.deps/libtorch stamp="$stamp_text, gpu libraries: $want_cuda"
  if [ -n "${LIBTORCH_ROOT:-}" ]; then
    [ -e "$LIBTORCH_ROOT/lib/libtorch_cpu.so" ] && [ -e "$LIBTORCH_ROOT/include/torch/csrc/api/include/torch/torch.h" ] || {
      say "LIBTORCH_ROOT=$LIBTORCH_ROOT has no LibTorch (lib/libtorch_cpu.so and include/). Unset it, or set it to an unpacked LibTorch." >&2
      exit 1; }
    say "LibTorch: yours, in $LIBTORCH_ROOT"
    return
  fi
  # A copy with the GPU libraries also serves without them.
  if grep -qxF -e "$stamp" -e "$stamp_text, gpu libraries: yes" "$root/stamp" 2>/dev/null; then say "LibTorch $torch_version: already installed"; return; fi
  if [ "$(uname -m)" != x86_64 ]; then
    say "no LibTorch wheel is pinned for $(uname -m): set LIBTORCH_ROOT to an unpacked LibTorch $torch_version" >&2
    exit 1
  fi
  say "fetching LibTorch $torch_version (530 MB)"
  rm -rf "$root" .deps/wheels && mkdir -p "$root" .deps/wheels
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --python-version 3.11 --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --dest .deps/wheels --requirement scripts/libtorch-wheels.txt
  python3 scripts/unpack_libtorch.py .deps/wheels "$root" "$want_cuda"
  rm -rf .deps/wheels
  printf '%s\n' "$stamp" > "$root/stamp"
  say "LibTorch $torch_version: unpacked into $root"
}

# For one test, which is left out without TensorBoard. So a failed download is reported and is not an error.
install_tensorboard() {
  local root=.deps/tensorboard wheels=scripts/tensorboard-wheels.txt
  if cmp -s "$wheels" "$root/stamp"; then say "TensorBoard: already installed"; return; fi
  rm -rf "$root"
  say "fetching TensorBoard (40 MB)"
  if /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
      --no-warn-script-location --target "$root" --requirement "$wheels"; then
    cp "$wheels" "$root/stamp"
    say "TensorBoard: in $root"
  else
    rm -rf "$root"
    say "no TensorBoard for this machine's /usr/bin/python3: the test that needs it is left out" >&2
  fi
}

# CUDA_ROOT names an installed toolkit.
install_nvcc() {
  local root=.deps/cuda wheels=scripts/nvcc-wheels.txt
  if [ -n "${CUDA_ROOT:-}" ]; then
    [ -x "$CUDA_ROOT/bin/nvcc" ] || {
      say "CUDA_ROOT=$CUDA_ROOT has no bin/nvcc. Unset it, or set it to a CUDA toolkit." >&2; exit 1; }
    say "nvcc: yours, in $CUDA_ROOT"
    return
  fi
  if cmp -s "$wheels" "$root/stamp"; then say "nvcc: already installed"; return; fi
  if [ "$(uname -m)" != x86_64 ]; then
    say "no nvcc wheel is pinned for $(uname -m): set CUDA_ROOT to a CUDA toolkit" >&2
    exit 1
  fi
  say "fetching nvcc (100 MB)"
  rm -rf "$root" .deps/nvcc-wheels
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes \
    --target .deps/nvcc-wheels --requirement "$wheels"
  mv .deps/nvcc-wheels/nvidia/cu13 "$root"
  rm -rf .deps/nvcc-wheels
  cp "$wheels" "$root/stamp"
  say "nvcc: in $root"
}

# PyTorch's own wheel with all that it imports: its C++ half is what install_libtorch unpacks, without Python's.
install_python() {
  local root=.deps/python wheels=(scripts/torch-wheels.txt scripts/python-wheels.txt)
  if cmp -s <(cat "${wheels[@]}") "$root/stamp"; then say "PyTorch for Python: there"; return; fi
  rm -rf "$root"
  say "fetching PyTorch $torch_version for Python (2.5 GB, 5 GB unpacked)"
  /usr/bin/python3 -m venv "$root"
  "$root/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    "${wheels[@]/#/--requirement=}"
  cat "${wheels[@]}" >"$root/stamp"
  say "PyTorch for Python: in $root"
}

if [ -r /etc/os-release ] && (. /etc/os-release && [ "$ID" = debian ] && [ "${VERSION_ID:-}" = 12 ]); then
  install_packages
else
  name_what_is_missing
fi
if [ "$want_libtorch" = yes ]; then install_libtorch; install_tensorboard; fi
if [ "$want_grpc" = yes ]; then scripts/grpc.sh "${@:2}"; fi
if [ "$want_python" = yes ]; then install_python; fi
if [ "$want_nvcc" = yes ]; then install_nvcc; fi
