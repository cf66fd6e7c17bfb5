// SPDX-License-Identifier: Apache-2.0
// Coding of positions by a block of threads. It produces the same bytes as
// compress/coding/position_coding.h: sums over the gaps for each candidate coding, the selection
// rule of compress/coding/index_plan.h, and the planes.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/planes.h"

namespace sluice::compress::gpu {

// The gaps between a chunk's kept elements.
struct Gaps {
  const uint32_t* at;
  uint32_t kept;
  // Has space for one number per element of the chunk.
  uint32_t* scratch;

  // Returns the number of gaps in a block, which is at most kRiceBlock.
  constexpr uint32_t BlockSize(uint32_t block) const {
    const auto size = static_cast<uint32_t>(kRiceBlock);
    return Min(size, kept - block * size);
  }
  constexpr int Parameter(uint32_t block) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < BlockSize(block); ++i) sum += at[block * kRiceBlock + i];
    return BlockParameter(sum);
  }
  constexpr uint32_t LowBytes(uint32_t block) const {
    return static_cast<uint32_t>(RemainderBytes(BlockSize(block), Parameter(block)));
  }
  constexpr uint32_t blocks() const { return static_cast<uint32_t>(RiceBlocks(kept)); }
};

// The sums that ChoosePositions needs. All threads must make the same calls. No sum exceeds the
// chunk's number of elements.
template <class Block>
struct GapSums {
  Block& block;
  const Gaps gaps;

  constexpr QuotientSums Quotients(int shift) {
    typename Block::template Each<uint32_t> sums[kDivisorCount];
    typename Block::template Each<uint32_t> most;
    block.ForEach([&](int thread) {
      most[thread] = 0;
      for (auto& sum : sums) sum[thread] = 0;
      for (uint32_t i = thread; i < gaps.kept; i += kThreadsOf<Block>) {
        most[thread] = Max(most[thread], gaps.at[i]);
        for (size_t j = 0; j < kDivisorCount; ++j) {
          sums[j][thread] += (gaps.at[i] >> shift) / DivisorAt(j);
        }
      }
    });
    QuotientSums result{};
    for (size_t j = 0; j < kDivisorCount; ++j) result.sums[j] = block.ExclusiveSum(sums[j]);
    result.largest = block.Max(most);
    return result;
  }
  constexpr BlockSizes Blocks() {
    BlockSizes sizes{};
    sizes.low_bytes = SumOf(block, gaps.blocks(), [&](uint32_t i) { return gaps.LowBytes(i); });
    sizes.quotients = SumOf(block, gaps.blocks(), [&](uint32_t i) {
      const int parameter = gaps.Parameter(i);
      uint32_t sum = 0;
      for (uint32_t j = 0; j < gaps.BlockSize(i); ++j) {
        sum += gaps.at[i * kRiceBlock + j] >> parameter;
      }
      return sum;
    });
    return sizes;
  }
  constexpr uint64_t Codes(int width, uint32_t largest) {
    const uint32_t escape = (uint32_t{1} << width) - 1;
    if (largest < escape) return gaps.kept;
    return uint64_t{gaps.kept} +
           SumOf(block, gaps.kept, [&](uint32_t i) { return gaps.at[i] / escape; });
  }
  constexpr uint32_t Largest() {
    return LargestOf(block, gaps.kept, [&](uint32_t i) { return gaps.at[i]; });
  }
};

// `sum` is the sum of the gaps.
template <class Block>
constexpr IndexLayout PlanPositions(Block& block, IndexMode mode, const Gaps& gaps, uint32_t sum) {
  GapSums<Block> sums{block, gaps};
  return ChoosePositions(mode, gaps.kept, sum, sums);
}

// Writes a parameter for each block of gaps, and the low bits of the gaps.
template <class Block>
constexpr void WriteBlocks(Block& block, const Gaps& gaps, uint8_t* out) {
  block.ForEach([&](int thread) {
    const auto bytes = static_cast<uint32_t>(ParameterBytes(gaps.kept));
    for (uint32_t i = thread; i < bytes; i += kThreadsOf<Block>) {
      const int upper = 2 * i + 1 < gaps.blocks() ? gaps.Parameter(2 * i + 1) : 0;
      out[i] = static_cast<uint8_t>(gaps.Parameter(2 * i) | upper << 4);
    }
  });
  uint8_t* const lows = out + ParameterBytes(gaps.kept);
  ForEachSum(
      block, gaps.blocks(), [&](uint32_t i) { return gaps.LowBytes(i); },
      [&](uint32_t i, uint32_t before) {
        PackRun(i * static_cast<uint32_t>(kRiceBlock), gaps.BlockSize(i), gaps.Parameter(i),
                lows + before, [&](uint32_t j) { return gaps.at[j]; });
      });
}

template <class Block>
constexpr void WriteFirstPlanes(Block& block, const IndexLayout& plan, const Gaps& gaps,
                                uint8_t* out) {
  if (plan.coding == kBlocksCoding) return WriteBlocks(block, gaps, out);
  if (HasCodes(plan.coding)) return;
  const int parameter = ParameterOf(plan.coding);
  WritePacked(block, gaps.kept, parameter, out, [&](uint32_t i) { return gaps.at[i]; });
  if (!HasThirds(plan.coding)) return;
  uint8_t* const thirds = out + RemainderBytes(gaps.kept, parameter);
  block.ForEach([&](int thread) {
    const auto each = static_cast<uint32_t>(kThirdsPerByte);
    for (uint32_t i = each * thread; i < gaps.kept; i += each * kThreadsOf<Block>) {
      unsigned byte = 0, weight = 1;
      for (uint32_t j = i; j < i + each && j < gaps.kept; ++j, weight *= 3) {
        byte += (gaps.at[j] >> parameter) % 3 * weight;
      }
      thirds[i / each] = static_cast<uint8_t>(byte);
    }
  });
}

// Writes codes of `width` bits. A gap may take several codes.
template <class Block>
constexpr void WriteGapCodes(Block& block, const IndexLayout& plan, const Gaps& gaps,
                             uint8_t* out) {
  const int width = WidthOf(plan.coding);
  const uint32_t escape = (uint32_t{1} << width) - 1;
  const auto codes = static_cast<uint32_t>(plan.last_bits / static_cast<unsigned>(width));
  if (codes == gaps.kept) {
    return WritePacked(block, codes, width, out, [&](uint32_t i) { return gaps.at[i]; });
  }
  block.ForEach([&](int thread) {
    for (uint32_t i = thread; i < codes; i += kThreadsOf<Block>) gaps.scratch[i] = escape;
  });
  // ForEachSum synchronizes the threads before the first write to the scratch buffer.
  ForEachSum(
      block, gaps.kept, [&](uint32_t i) { return gaps.at[i] / escape + 1; },
      [&](uint32_t i, uint32_t before) {
        gaps.scratch[before + gaps.at[i] / escape] = gaps.at[i] % escape;
      });
  WritePacked(block, codes, width, out, [&](uint32_t i) { return gaps.scratch[i]; });
}

template <class Block>
constexpr void WriteLastPlane(Block& block, const IndexLayout& plan, const Gaps& gaps,
                              uint8_t* out) {
  if (HasCodes(plan.coding)) return WriteGapCodes(block, plan, gaps, out);
  const int parameter = ParameterOf(plan.coding);
  const uint32_t factor = HasThirds(plan.coding) ? 3 : 1;
  const bool of_blocks = plan.coding == kBlocksCoding;
  WriteUnary(block, gaps.kept, plan.last_bits, gaps.scratch, out, [&](uint32_t i) {
    const auto size = static_cast<uint32_t>(kRiceBlock);
    return of_blocks ? gaps.at[i] >> gaps.Parameter(i / size) : (gaps.at[i] >> parameter) / factor;
  });
}

}  // namespace sluice::compress::gpu
