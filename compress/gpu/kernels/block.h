// SPDX-License-Identifier: Apache-2.0
// The form of kernels, which lets the same source run on a GPU and on a plain processor.
//
// A kernel is a struct of pointers and numbers with
//   static constexpr int kThreads;                // a multiple of 32
//   struct Shared {...};                          // the block's shared memory
//   template <class Block> constexpr void operator()(Block& block, Shared& shared,
//                                                    uint32_t index) const;
// The operator runs for each block index below the grid's size, in any order. Code that each thread
// runs by itself is inside block.ForEach([&](int thread) {...}). An Each<T> is a variable that each
// thread keeps from one ForEach to the next. Collectives are called between two calls of ForEach,
// and all threads of a block must reach them. After Sync, each thread of a block may read data that
// another thread of the block has written to shared or global memory. DeviceBlock
// (device_block.cuh) is a real block: ForEach calls the function once, and an Each<T> is a
// register. HostBlock below makes it possible to test kernels without a GPU: each ForEach is a
// phase that iterates over all threads, in either order.
//
// All functions that kernels call are constexpr. nvcc compiles such functions for the device as
// well (--expt-relaxed-constexpr), so they need no annotations that other compilers do not know.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice::compress::gpu {

inline constexpr int kWarp = 32;

// The order in which a HostBlock runs the threads of a phase. If the two orders give different
// results, the kernel has a race.
enum class ThreadOrder { kForward, kBackward };

template <int kThreads>
class HostBlock {
 public:
  static constexpr int kWarps = kThreads / kWarp;
  template <class T>
  using Each = std::array<T, kThreads>;

  constexpr explicit HostBlock(ThreadOrder order) : order_(order) {}

  template <class Fn>
  constexpr void ForEach(Fn fn) const {
    for (int i = 0; i < kThreads; ++i) fn(order_ == ThreadOrder::kForward ? i : kThreads - 1 - i);
  }
  constexpr void Sync() const {}

  // Gives each thread the largest value in its warp.
  constexpr void MaxOfWarp(Each<uint32_t>& x) const {
    for (int first = 0; first < kThreads; first += kWarp) {
      const auto* const begin = x.data() + first;
      const uint32_t largest = *std::max_element(begin, begin + kWarp);
      std::fill(x.data() + first, x.data() + first + kWarp, largest);
    }
  }
  // Sets bit i if the value of thread i of the warp is not 0.
  constexpr void Ballot(Each<uint32_t>& x) const {
    for (int first = 0; first < kThreads; first += kWarp) {
      uint32_t bits = 0;
      for (int i = 0; i < kWarp; ++i) bits |= uint32_t{x[first + i] != 0} << i;
      std::fill(x.data() + first, x.data() + first + kWarp, bits);
    }
  }
  // Gives each thread the sum of the values of all earlier threads. Returns the sum of all values.
  // Includes a Sync.
  constexpr uint32_t ExclusiveSum(Each<uint32_t>& x) const {
    uint32_t sum = 0;
    for (uint32_t& value : x) {
      const uint32_t here = value;
      value = sum;
      sum += here;
    }
    return sum;
  }
  // Returns the largest value among all threads. Includes a Sync.
  constexpr uint32_t Max(const Each<uint32_t>& x) const {
    return *std::max_element(x.begin(), x.end());
  }

  // Updates global memory that other blocks may update at the same time. The result does not depend
  // on the order.
  static constexpr void AtomicMax(uint32_t* at, uint32_t value) { *at = std::max(*at, value); }
  static constexpr void AtomicAdd(uint32_t* at, uint32_t value) { *at += value; }

 private:
  const ThreadOrder order_;
};

// Runs `blocks` blocks of a kernel in ascending or descending order.
template <class Kernel>
void RunOnHost(const Kernel& kernel, uint32_t blocks, ThreadOrder order = ThreadOrder::kForward) {
  HostBlock<Kernel::kThreads> block(order);
  for (uint32_t i = 0; i < blocks; ++i) {
    typename Kernel::Shared shared;
    kernel(block, shared, order == ThreadOrder::kForward ? i : blocks - 1 - i);
  }
}

}  // namespace sluice::compress::gpu
