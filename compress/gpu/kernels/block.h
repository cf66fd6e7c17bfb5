// The shape in which kernels are written: once, for a GPU and for a plain processor.
//
// A kernel is a struct of pointers and numbers with
//   static constexpr int kThreads;                // a multiple of 32
//   struct Shared {...};                          // the block's shared memory
//   template <class Block> constexpr void operator()(Block& block, Shared& shared,
//                                                    uint32_t index) const;
// which is run for each block index below the grid's size, in any order. Inside it all code that is
// a thread's own stands in block.ForEach([&](int thread) {...}); variables that a thread keeps from
// one ForEach to the next are an Each<T>. Between them stand the collectives, which all threads of
// a block reach alike. What one thread writes to shared or global memory another one of the block
// may read after Sync. DeviceBlock (device_block.cuh) is a real block: ForEach calls once, an
// Each<T> is a register. HostBlock below goes through the threads one after the other, so that
// kernels are tested where there is no GPU: in lockstep phases, with the threads of a phase in any
// order.
//
// All functions that kernels call are constexpr: nvcc compiles those for the device too
// (--expt-relaxed-constexpr), so none of them needs a mark that another compiler would not know.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice::compress::gpu {

inline constexpr int kWarp = 32;

// How a HostBlock goes through the threads of a phase. A kernel whose result differs between the
// two has a race.
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

  // Each thread gets its warp's largest.
  constexpr void MaxOfWarp(Each<uint32_t>& x) const {
    for (int first = 0; first < kThreads; first += kWarp) {
      const auto* const begin = x.data() + first;
      const uint32_t largest = *std::max_element(begin, begin + kWarp);
      std::fill(x.data() + first, x.data() + first + kWarp, largest);
    }
  }
  // Bit i is whether thread i of the warp has something other than 0.
  constexpr void Ballot(Each<uint32_t>& x) const {
    for (int first = 0; first < kThreads; first += kWarp) {
      uint32_t bits = 0;
      for (int i = 0; i < kWarp; ++i) bits |= uint32_t{x[first + i] != 0} << i;
      std::fill(x.data() + first, x.data() + first + kWarp, bits);
    }
  }
  // Each thread gets the sum of those before it; returns the sum of all. Includes a Sync.
  constexpr uint32_t ExclusiveSum(Each<uint32_t>& x) const {
    uint32_t sum = 0;
    for (uint32_t& value : x) {
      const uint32_t here = value;
      value = sum;
      sum += here;
    }
    return sum;
  }
  // The largest of all threads. Includes a Sync.
  constexpr uint32_t Max(const Each<uint32_t>& x) const {
    return *std::max_element(x.begin(), x.end());
  }

  // Of global memory, which other blocks may change at the same time; the order does not matter.
  static constexpr void AtomicMax(uint32_t* at, uint32_t value) { *at = std::max(*at, value); }
  static constexpr void AtomicAdd(uint32_t* at, uint32_t value) { *at += value; }

 private:
  const ThreadOrder order_;
};

// Runs `blocks` blocks of a kernel, first to last, or last to first.
template <class Kernel>
void RunOnHost(const Kernel& kernel, uint32_t blocks, ThreadOrder order = ThreadOrder::kForward) {
  HostBlock<Kernel::kThreads> block(order);
  for (uint32_t i = 0; i < blocks; ++i) {
    typename Kernel::Shared shared;
    kernel(block, shared, order == ThreadOrder::kForward ? i : blocks - 1 - i);
  }
}

}  // namespace sluice::compress::gpu
