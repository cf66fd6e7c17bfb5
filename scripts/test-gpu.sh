#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with an NVIDIA GPU: builds the GPU kernels, compares their output with the processor's, looks for races and
# bad accesses, and measures. Needs a CUDA toolkit (tested with 13.0) and a C++ compiler, but no other dependency of Sluice.
# After scripts/setup.sh --cuda it also builds preset cuda, runs the encoder's tests on the GPU, and trains with
# two workers there.
#
# usage: scripts/test-gpu.sh [million elements]      size of the benchmark; the default 100 takes 5.5 GB on the GPU and in memory
# CUDA_ROOT=DIR: the toolkit. Default: .deps/cuda (scripts/setup.sh --nvcc), then the one in PATH, then /usr/local/cuda.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-100}" in
  *[!0-9]*|"") sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
say() { printf 'test-gpu: %s\n' "$*"; }

nvcc=
for candidate in "${CUDA_ROOT:-.deps/cuda}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  if [ -x "$candidate" ]; then nvcc=$candidate; break; fi
done
if [ -z "$nvcc" ]; then
  say "no nvcc: set CUDA_ROOT to a CUDA toolkit, or run scripts/setup.sh --nvcc" >&2
  exit 1
fi
root=$(dirname "$(dirname "$nvcc")")
if ! nvidia-smi -L >/dev/null 2>&1; then
  say "no GPU here (nvidia-smi finds none), so nothing can run; -DSLUICE_CUDA=ON builds without one" >&2
  exit 1
fi

# The same list as in cmake/nvcc.cmake.
flags=(-std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -arch=native -lineinfo -I . -L "$root/lib" -L "$root/lib64")
out=build/gpu
mkdir -p "$out"
say "building with $nvcc"
"$nvcc" "${flags[@]}" -o "$out/cuda_codec_bench" bench/cuda_codec_bench.cu & bench=$!
"$nvcc" "${flags[@]}" -o "$out/kernel_check" tests/compress/gpu/device/kernel_check.cu
wait "$bench"

say "kernels against the processor"
"$out/kernel_check"

say "speed"
"$out/cuda_codec_bench" "${1:-100}"

sanitizer=$root/bin/compute-sanitizer
if [ ! -x "$sanitizer" ]; then sanitizer=$(command -v compute-sanitizer || true); fi
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck synccheck; do
    say "compute-sanitizer $tool"
    "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1 "$out/kernel_check"
  done
else
  say "no compute-sanitizer in $root/bin: left out"
fi

if [ ! -e .deps/libtorch/lib/libtorch_cuda.so ]; then
  say "no LibTorch for GPUs in .deps (scripts/setup.sh --cuda): nothing was trained"
  exit 0
fi
say "building preset cuda"
cmake --preset cuda -DSLUICE_UNITY=ON >/dev/null
cmake --build --preset cuda --target cuda_encoder_tests sluice sluice-server sluice-worker
if ldd build/cuda/bin/sluice-worker | grep -q 'not found'; then
  # Other libraries that LibTorch needs and this machine lacks: cuDNN, cuBLAS, NCCL and others.
  if [ ! -d .deps/cuda-libraries ]; then
    say "fetching NVIDIA's libraries (2.7 GB)"
    deploy/docker/cuda_libraries.sh .deps/cuda-libraries.part
    mv .deps/cuda-libraries.part .deps/cuda-libraries
  fi
  export LD_LIBRARY_PATH=$PWD/.deps/cuda-libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
say "the encoder on the GPU"
build/cuda/bin/cuda_encoder_tests --gtest_brief=1
say "two workers that train on the GPU, encode there, and then on the host"
python3 tests/e2e/gpu_test.py build/cuda/bin --gpu Gpu.test_encoded_on_the_host
