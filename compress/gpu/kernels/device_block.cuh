// SPDX-License-Identifier: Apache-2.0
// DeviceBlock: a block of GPU threads for kernels (see block.h), and Launch, which runs kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "compress/gpu/kernels/block.h"

namespace sluice::compress::gpu {

template <int kThreads>
class DeviceBlock {
 public:
  static constexpr int kWarps = kThreads / kWarp;
  static constexpr unsigned kAll = 0xFFFFFFFF;

  // A variable of a single thread. The index is ignored; it exists so that the same source works
  // for both kinds of blocks.
  template <class T>
  class Each {
   public:
    __device__ T& operator[](int) { return value_; }
    __device__ const T& operator[](int) const { return value_; }

   private:
    T value_;
  };

  __device__ explicit DeviceBlock(uint32_t* sums) : sums_(sums) {}

  template <class Fn>
  __device__ void ForEach(Fn fn) const {
    fn(static_cast<int>(threadIdx.x));
  }
  __device__ void Sync() const { __syncthreads(); }

  __device__ void MaxOfWarp(Each<uint32_t>& x) const { x[0] = __reduce_max_sync(kAll, x[0]); }
  __device__ void Ballot(Each<uint32_t>& x) const { x[0] = __ballot_sync(kAll, x[0] != 0); }

  __device__ uint32_t ExclusiveSum(Each<uint32_t>& x) const {
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const uint32_t own = x[0];
    uint32_t sum = own;
    for (unsigned step = 1; step < kWarp; step *= 2) {
      const uint32_t before = __shfl_up_sync(kAll, sum, step);
      if (lane >= step) sum += before;
    }
    // Other threads may still be reading the sums of the previous collective.
    __syncthreads();
    if (lane == kWarp - 1) sums_[warp] = sum;
    __syncthreads();
    uint32_t before = 0, total = 0;
    for (unsigned i = 0; i < kWarps; ++i) {
      before += i < warp ? sums_[i] : 0;
      total += sums_[i];
    }
    x[0] = before + sum - own;
    return total;
  }

  __device__ uint32_t Max(const Each<uint32_t>& x) const {
    const uint32_t largest = __reduce_max_sync(kAll, x[0]);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) sums_[threadIdx.x / kWarp] = largest;
    __syncthreads();
    uint32_t total = 0;
    for (unsigned i = 0; i < kWarps; ++i) total = sums_[i] > total ? sums_[i] : total;
    return total;
  }

  static __device__ void AtomicMax(uint32_t* at, uint32_t value) { atomicMax(at, value); }
  static __device__ void AtomicAdd(uint32_t* at, uint32_t value) { atomicAdd(at, value); }

 private:
  uint32_t* const sums_;  // Shared memory with one sum for each warp.
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) RunKernel(const Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  __shared__ uint32_t sums[Kernel::kThreads / kWarp];
  DeviceBlock<Kernel::kThreads> block(sums);
  kernel(block, shared, blockIdx.x);
}

// Enqueues the kernel on the stream. Only errors of the launch are returned.
template <class Kernel>
cudaError_t Launch(const Kernel& kernel, uint32_t blocks, cudaStream_t stream) {
  if (blocks == 0) return cudaSuccess;
  RunKernel<Kernel><<<blocks, Kernel::kThreads, 0, stream>>>(kernel);
  return cudaGetLastError();
}

}  // namespace sluice::compress::gpu
