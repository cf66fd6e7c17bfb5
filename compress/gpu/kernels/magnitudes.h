// SPDX-License-Identifier: Apache-2.0
// SampleMagnitudes: counts |acc| of some elements in logarithmic bins. The kernel uses the same
// elements and bins as MagnitudeHistogram::Add. MagnitudeHistogram::AddCounts receives the result.
// The thresholds of the next step are computed from it. The kernel must run before the launch that
// encodes.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

template <class Gradient>
struct SampleMagnitudes {
  static constexpr int kThreads = 256;
  static constexpr uint32_t kBins = 2048;
  static constexpr int kBinShift = 20;
  static constexpr uint32_t kGroup = 64;  // Number of elements in a group.
  static constexpr int kRun = kGroup / kWarp;
  struct Shared {
    uint32_t counts[kBins];
  };

  const Chunk* chunks;
  // The stride of each chunk: one in this many groups is counted. Must be above 0.
  const uint32_t* strides;
  // kBins counts, summed over all chunks of the launch. Each counted group adds `stride` times its
  // counts.
  uint32_t* counts;

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t groups = (chunk.count + kGroup - 1) / kGroup;
    const uint32_t stride = Min(strides[index], groups);
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < kBins; i += kThreads) shared.counts[i] = 0;
    });
    block.Sync();
    block.ForEach([&](int thread) {
      // One warp handles each group.
      for (uint64_t pick = thread / kWarp; pick * stride < groups; pick += kThreads / kWarp) {
        const uint64_t first = pick * stride;
        const uint64_t among = Min<uint64_t>(stride, groups - first);
        const auto group = static_cast<uint32_t>(first + CounterRandom(first).Below(among));
        const uint32_t at = group * kGroup + thread % kWarp * kRun;
        const auto acc = LoadAcc<Gradient, kRun, true>(chunk, at);
        for (int i = 0; i < kRun; ++i) {
          if (at + i < chunk.count) {
            block.AtomicAdd(&shared.counts[MagnitudeBits(acc.at[i]) >> kBinShift], stride);
          }
        }
      }
    });
    block.Sync();
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < kBins; i += kThreads) {
        if (shared.counts[i] != 0) block.AtomicAdd(&counts[i], shared.counts[i]);
      }
    });
  }
};

}  // namespace sluice::compress::gpu
