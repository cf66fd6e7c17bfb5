// What a block of threads does with numbers one after the other: sums, places, compaction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compress/gpu/kernels/block.h"

namespace sluice::compress::gpu {

template <class Block>
inline constexpr uint32_t kThreadsOf = Block::kWarps* kWarp;

// The sum of number(i), i below `count`. All threads get it; likewise below. Includes a Sync.
template <class Block, class Number>
constexpr uint32_t SumOf(Block& block, uint32_t count, Number number) {
  typename Block::template Each<uint32_t> sum;
  block.ForEach([&](int thread) {
    sum[thread] = 0;
    for (uint32_t i = thread; i < count; i += kThreadsOf<Block>) sum[thread] += number(i);
  });
  return block.ExclusiveSum(sum);
}

// The largest. Includes a Sync.
template <class Block, class Number>
constexpr uint32_t LargestOf(Block& block, uint32_t count, Number number) {
  typename Block::template Each<uint32_t> most;
  block.ForEach([&](int thread) {
    most[thread] = 0;
    for (uint32_t i = thread; i < count; i += kThreadsOf<Block>) {
      most[thread] = std::max(most[thread], number(i));
    }
  });
  return block.Max(most);
}

// take(i, sum of what number(j) is for all j < i); returns the sum of all. `number` is called once
// for each, before any `take` of the same round of threads. Ends with a Sync.
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
