// SPDX-License-Identifier: Apache-2.0
// Device memory and launches for the test and the benchmark on a GPU. Errors end the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "compress/gpu/kernels/device_block.cuh"
#include "tests/compress/gpu/device/kernel_inputs.h"

namespace sluice::compress::gpu {

inline constexpr int kNoGpu = 77;  // The exit status of a skipped test.

inline void OrDie(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Returns true if there is a GPU. Otherwise prints a message.
inline bool HasGpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) {
    cudaDeviceProp properties{};
    OrDie(cudaGetDeviceProperties(&properties, 0), "properties of the GPU");
    std::printf("%s, compute capability %d.%d\n", properties.name, properties.major,
                properties.minor);
    return true;
  }
  std::printf("skipped: no GPU here (%s)\n", cudaGetErrorString(error));
  return false;
}

// Owns a copy of `host` on the device.
template <class T>
class DeviceCopy {
 public:
  explicit DeviceCopy(const std::vector<T>& host) : count_(host.size()) {
    OrDie(cudaMalloc(&data_, count_ * sizeof(T)), "memory on the GPU");
    Set(host);
  }
  ~DeviceCopy() { cudaFree(data_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  void Set(const std::vector<T>& host) {
    OrDie(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
          "copy to the GPU");
  }
  std::vector<T> Get() const {
    std::vector<T> host(count_);
    OrDie(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
          "copy from the GPU");
    return host;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  const size_t count_;
};

// Inputs of a step in device memory.
class DeviceInputs {
 public:
  explicit DeviceInputs(const StepInputs& host)
      : lists_(host.Lists()),
        chunks_(host.chunks),
        matrices_(host.matrices),
        tiles_(host.tiles),
        row_tiles_(host.row_tiles),
        column_tiles_(host.column_tiles) {
    lists_.chunks = chunks_.data();
    lists_.matrices = matrices_.data();
    lists_.tiles = tiles_.data();
    lists_.row_tiles = row_tiles_.data();
    lists_.column_tiles = column_tiles_.data();
  }

  StepLists Lists() const { return lists_; }

 private:
  StepLists lists_;
  const DeviceCopy<Chunk> chunks_;
  const DeviceCopy<LowRankMatrix> matrices_;
  const DeviceCopy<Tile> tiles_, row_tiles_, column_tiles_;
};

struct DeviceLauncher {
  cudaStream_t stream = nullptr;
  template <class Kernel>
  void operator()(const Kernel& kernel, uint32_t blocks) const {
    OrDie(Launch(kernel, blocks, stream), "launch");
  }
};

}  // namespace sluice::compress::gpu
