// SPDX-License-Identifier: Apache-2.0
// Codec ternary:t, as in compress/codecs/ternary.h. One pass selects and quantizes elements and
// updates the residual. Then FinishTernary, with a block of threads per chunk, reads only the kept
// elements and writes the payload.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/sparse.h"

namespace sluice::compress::gpu {

// The bit in a position that marks a negative value.
inline constexpr uint32_t kTernarySign = 0x80000000;
inline constexpr int kTernaryShift = 20;  // A scale has 3 bits of mantissa.
inline constexpr uint32_t kTernaryMax = 0x7F7;

template <class Gradient>
struct EncodeTernary {
  static constexpr int kThreads = kTileThreads;
  static constexpr int kLanes = 8;
  struct Shared {
    float acc[kTileThreads / kWarp][kCodeBlock];
    double sums[kTileThreads / kWarp][kLanes];
  };

  const Chunk* chunks;
  const Tile* tiles;
  float share;
  Slots slots;  // The values are not used.
  // The codes of the scales for the blocks of all chunks. 0 if a block keeps no element.
  uint32_t* scales;

  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    for (int round = 0; round < kTileRounds; ++round) Encode(block, shared, tile, chunk, round);
  }

 private:
  template <class Block>
  constexpr void Encode(Block& block, Shared& shared, const Tile& tile, const Chunk& chunk,
                        int round) const {
    typename Block::template Each<Lane<4>> lanes;
    typename Block::template Each<uint32_t> largest;
    Ranks<Block> ranks;
    block.ForEach([&](int thread) {
      largest[thread] = lanes[thread].template Load<Gradient>(chunk, BlockOf(tile, round, thread),
                                                              thread % kWarp);
    });
    block.MaxOfWarp(largest);
    const auto tau = [&](int thread) {
      const float least = share * std::bit_cast<float>(largest[thread]);
      // The threshold is above 0, so that zeros are never kept.
      return least > 0 ? least : std::bit_cast<float>(uint32_t{1});
    };
    ranks.Ballot(block, [&](int thread, int plane, int i) {
      return Magnitude(lanes[thread].acc[plane].at[i]) >= tau(thread);
    });
    block.ForEach([&](int thread) {
      for (int plane = 0; plane < Lane<4>::kPlanes; ++plane) {
        for (int i = 0; i < Lane<4>::kRun; ++i) {
          shared.acc[thread / kWarp][Lane<4>::At(thread % kWarp, plane) + i] =
              lanes[thread].acc[plane].at[i];
        }
      }
    });
    block.Sync();
    block.ForEach([&](int thread) {
      if (thread % kWarp >= kLanes) return;
      double sum = 0;
      for (uint32_t i = thread % kWarp; i < kCodeBlock; i += kLanes) {
        const float x = Magnitude(shared.acc[thread / kWarp][i]);
        sum += x >= tau(thread) ? double{x} : 0.0;
      }
      shared.sums[thread / kWarp][thread % kWarp] = sum;
    });
    block.Sync();
    block.ForEach([&](int thread) {
      const uint32_t at = BlockOf(tile, round, thread);
      if (at >= chunk.count) return;
      const uint32_t kept = ranks.ForEachKept(thread, [](uint32_t, int, int) {});
      double total = 0;
      for (const double sum : shared.sums[thread / kWarp]) total += sum;
      const uint32_t code = kept > 0 ? ScaleCode(total, kept) : 0;
      Keep(ranks, chunk, at, thread, code, &lanes[thread]);
      if (thread % kWarp != 0) return;
      scales[chunk.first_block + at / kCodeBlock] = code;
      slots.kept[chunk.first_block + at / kCodeBlock] = code > 0 ? kept : 0;
    });
  }

  template <class Block>
  constexpr void Keep(const Ranks<Block>& ranks, const Chunk& chunk, uint32_t at, int thread,
                      uint32_t code, Lane<4>* elements) const {
    const int lane = thread % kWarp;
    const float scale = std::bit_cast<float>(code << kTernaryShift);
    if (code > 0) {
      ranks.ForEachKept(thread, [&](uint32_t rank, int plane, int i) {
        float& x = elements->acc[plane].at[i];
        const uint32_t sign = std::bit_cast<uint32_t>(x) & kSignBit;
        slots.positions[chunk.first_element + at + rank] =
            (at + Lane<4>::At(lane, plane) + i) | sign;
        x -= std::bit_cast<float>(std::bit_cast<uint32_t>(scale) | sign);
      });
    }
    elements->StoreLeft(chunk, at, lane);
  }

  static constexpr uint32_t ScaleCode(double sum, uint32_t kept) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(sum / static_cast<double>(kept)));
    constexpr uint32_t kHalf = (1 << (kTernaryShift - 1)) - 1;
    return Min((bits + kHalf + ((bits >> kTernaryShift) & 1)) >> kTernaryShift, kTernaryMax);
  }
};

struct FinishTernary {
  static constexpr int kThreads = 256;
  struct Shared {};
  // Size of the part of the payload that precedes the positions.
  static constexpr uint32_t kOpening = 14;

  const Chunk* chunks;
  IndexMode index_mode;
  // After packing, the positions' memory is used as a scratch buffer.
  Slots slots;
  // The output of EncodeTernary. FinishTernary replaces it with the steps between sent scales.
  uint32_t* scales;
  // Positions with signs. Has space for all elements.
  uint32_t* packed;
  uint32_t* gaps;   // Has space for all elements.
  uint32_t* kept;   // Number of values in each chunk.
  uint32_t* sizes;  // Size of each chunk's payload in bytes.

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t base = chunk.first_element;
    const uint32_t count = CompactSlots(block, chunk, slots.kept, [&](uint32_t from, uint32_t to) {
      packed[to] = slots.positions[from];
    });
    const uint32_t* const entries = packed + base;
    uint32_t* const scratch = slots.positions + base;
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < count; i += kThreads) {
        const uint32_t here = entries[i] & ~kTernarySign;
        gaps[base + i] = i == 0 ? here : here - (entries[i - 1] & ~kTernarySign) - 1;
      }
    });
    const uint32_t* const steps = scales + chunk.first_block;
    const uint32_t step_count = FoldSteps(block, chunk, scratch);
    const Gaps all{gaps + base, count, scratch};
    const uint32_t sum = count == 0 ? 0 : (entries[count - 1] & ~kTernarySign) + 1 - count;
    const IndexLayout plan = PlanPositions(block, index_mode, all, sum);
    const uint32_t largest = LargestOf(block, step_count, [&](uint32_t i) { return steps[i]; });
    const RicePlan rice = ChooseRice(step_count, largest, [&](int shift) {
      return SumOf(block, step_count, [&](uint32_t i) { return steps[i] >> shift; });
    });
    uint8_t* const signs = chunk.payload + kOpening + plan.first_bytes;
    uint8_t* const lows = signs + BytesFor(count);
    uint8_t* const unary = lows + RemainderBytes(step_count, rice.parameter);
    uint8_t* const last = unary + BytesFor(rice.unary_bits);
    const auto size = static_cast<uint32_t>(last - chunk.payload + BytesFor(plan.last_bits));
    block.ForEach([&](int thread) {
      if (thread != 0) return;
      WriteOpening(plan, rice, count, step_count, chunk.payload);
      kept[index] = count;
      sizes[index] = size;
    });
    WriteFirstPlanes(block, plan, all, chunk.payload + kOpening);
    WritePacked(block, count, 1, signs, [&](uint32_t i) { return entries[i] >> 31; });
    WritePacked(block, step_count, rice.parameter, lows, [&](uint32_t i) { return steps[i]; });
    WriteUnary(block, step_count, rice.unary_bits, scratch, unary,
               [&](uint32_t i) { return steps[i] >> rice.parameter; });
    WriteLastPlane(block, plan, all, last);
  }

 private:
  static constexpr void WriteOpening(const IndexLayout& plan, const RicePlan& rice, uint32_t count,
                                     uint32_t steps, uint8_t* at) {
    at[0] = plan.coding;
    at[1] = static_cast<uint8_t>(rice.parameter);
    StoreBytes<4>(count, at + 2);
    StoreBytes<4>(steps, at + 6);
    StoreBytes<4>(static_cast<uint32_t>(BytesFor(rice.unary_bits)), at + 10);
  }

  // Computes the step from each sent scale to the next one. Steps are coded in the order 0, -1, 1,
  // -2, 2, so that small steps have small codes. Returns the number of steps.
  template <class Block>
  constexpr uint32_t FoldSteps(Block& block, const Chunk& chunk, uint32_t* scratch) const {
    uint32_t* const codes = scales + chunk.first_block;
    const uint32_t blocks = (chunk.count + kCodeBlock - 1) / kCodeBlock;
    const uint32_t count = ForEachSum(
        block, blocks, [&](uint32_t i) { return codes[i] > 0 ? 1u : 0u; },
        [&](uint32_t i, uint32_t before) {
          if (codes[i] > 0) scratch[before] = codes[i];
        });
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < count; i += kThreads) {
        const uint32_t step = scratch[i] - (i == 0 ? 0 : scratch[i - 1]);
        codes[i] = step << 1 ^ (step >> 31 != 0 ? ~uint32_t{0} : 0);
      }
    });
    block.Sync();
    return count;
  }
};

}  // namespace sluice::compress::gpu
