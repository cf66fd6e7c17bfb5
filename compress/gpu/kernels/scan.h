// SPDX-License-Identifier: Apache-2.0
// Operations of a block of threads on consecutive numbers: sums, maxima, prefix sums.
#pragma once

#include <cstdint>

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"

namespace sluice::compress::gpu {

template <class Block>
inline constexpr uint32_t kThreadsOf = Block::kWarps* kWarp;

// Returns the sum of number(i) for all i below `count`, in all threads. Includes a Sync.
template <class Block, class Number>
constexpr uint32_t SumOf(Block& block, uint32_t count, Number number) {
  typename Block::template Each<uint32_t> sum;
  block.ForEach([&](int thread) {
    sum[thread] = 0;
    for (uint32_t i = thread; i < count; i += kThreadsOf<Block>) sum[thread] += number(i);
  });
  return block.ExclusiveSum(sum);
}

// Returns the largest number(i), in all threads. Includes a Sync.
template <class Block, class Number>
constexpr uint32_t LargestOf(Block& block, uint32_t count, Number number) {
  typename Block::template Each<uint32_t> most;
  block.ForEach([&](int thread) {
    most[thread] = 0;
    for (uint32_t i = thread; i < count; i += kThreadsOf<Block>) {
      most[thread] = Max(most[thread], number(i));
    }
  });
  return block.Max(most);
}

// Calls take(i, sum of number(j) for all j < i) for each i, and returns the sum of all numbers in
// all threads. Calls `number` once for each i, before any call of `take` in the same round of
// threads. Ends with a Sync.
template <class Block, class Number, class Take>
constexpr uint32_t ForEachSum(Block& block, uint32_t count, Number number, Take take) {
  uint32_t done = 0;
  for (uint32_t first = 0; first < count; first += kThreadsOf<Block>) {
    typename Block::template Each<uint32_t> before;
    block.ForEach([&](int thread) {
      const uint32_t i = first + thread;
      before[thread] = i < count ? number(i) : 0;
    });
    const uint32_t all = block.ExclusiveSum(before);
    block.ForEach([&](int thread) {
      const uint32_t i = first + thread;
      if (i < count) take(i, done + before[thread]);
    });
    done += all;
  }
  block.Sync();
  return done;
}

}  // namespace sluice::compress::gpu
