#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks NVIDIA's libraries of deploy/docker/cuda-wheels.txt into OUT, beside LibTorch's own.
# usage: deploy/docker/cuda_libraries.sh OUT
set -euo pipefail
out=${1:?$(sed -n '4s/^# //p' "$0")}
wheels=$(cd "$(dirname "$0")" && pwd)/cuda-wheels.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=(--platform manylinux2014_x86_64)
for glibc in 2_5 2_12 2_17 2_18 2_27; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --python-version 3.11 \
  "${platforms[@]}" --dest "$work/wheels" --requirement "$wheels"
mkdir -p "$out"
for wheel in "$work"/wheels/*.whl; do
  python3 -m zipfile -e "$wheel" "$work/unpacked"
  rm "$wheel"
  find "$work/unpacked" -path '*/lib/*' -name '*.so*' -exec mv -t "$out" {} +
  rm -r "$work/unpacked"
done
