// SPDX-License-Identifier: Apache-2.0
// Codecs that send some elements with their positions, as in compress/codecs/sparse.h. Encoding
// takes two launches:
//   1. SelectAbove (or a similar kernel) reads memory once. It computes acc, and writes the kept
//      elements of each block of 256 to the block's slots, in order.
//
//   2. FinishSparse, with a block of threads per chunk, compacts a chunk's slots and codes the
//      positions and values. The result is the payload. It writes the rounding errors to the
//      residual. It reads only the kept elements.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/block.h"
#include "compress/gpu/kernels/codes.h"
#include "compress/gpu/kernels/positions.h"

namespace sluice::compress::gpu {

// Slots for the elements of all chunks (Chunk::first_element), and a count for each block of 256
// elements (Chunk::first_block).
struct Slots {
  uint32_t* positions;
  float* values;
  uint32_t* kept;
};

// Computes the rank of each kept element of a tile among the 256 consecutive elements of its warp.
template <class Block>
struct Ranks {
  using Elements = Lane<4>;
  static constexpr int kFlags = Elements::kPlanes * Elements::kRun;
  typename Block::template Each<uint32_t> ballots[kFlags];

  // `keep(thread, plane, i)` must return true if the element is kept.
  template <class Keep>
  constexpr void Ballot(Block& block, Keep keep) {
    for (int flag = 0; flag < kFlags; ++flag) {
      block.ForEach([&](int thread) {
        ballots[flag][thread] = keep(thread, flag / Elements::kRun, flag % Elements::kRun) ? 1 : 0;
      });
      block.Ballot(ballots[flag]);
    }
  }
  // Calls fn(rank, plane, i) for the elements that a thread keeps. Returns the number of elements
  // that the thread's warp keeps.
  template <class Fn>
  constexpr uint32_t ForEachKept(int thread, Fn fn) const {
    const int lane = thread % kWarp;
    const uint32_t before = (uint32_t{1} << lane) - 1;
    uint32_t first = 0;
    for (int plane = 0; plane < Elements::kPlanes; ++plane) {
      uint32_t rank = first;
      for (int i = 0; i < Elements::kRun; ++i) {
        const uint32_t bits = ballots[plane * Elements::kRun + i][thread];
        rank += static_cast<uint32_t>(PopCount(bits & before));
        first += static_cast<uint32_t>(PopCount(bits));
      }
      for (int i = 0; i < Elements::kRun; ++i) {
        if ((ballots[plane * Elements::kRun + i][thread] >> lane & 1) != 0) fn(rank++, plane, i);
      }
    }
    return first;
  }
};

template <class Gradient>
struct SelectAbove {
  static constexpr int kThreads = kTileThreads;
  struct Shared {};

  const Chunk* chunks;
  const Tile* tiles;
  // For each chunk: a threshold above 0, rounded as in a frame.
  const float* thresholds;
  Slots slots;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Tile tile = tiles[index];
    const Chunk chunk = chunks[tile.chunk];
    const float tau = thresholds[tile.chunk];
    for (int round = 0; round < kTileRounds; ++round) {
      typename Block::template Each<Lane<4>> lanes;
      Ranks<Block> ranks;
      block.ForEach([&](int thread) {
        const uint32_t at = BlockOf(tile, round, thread);
        lanes[thread].template Load<Gradient>(chunk, at, thread % kWarp);
        lanes[thread].StoreLeft(chunk, at, thread % kWarp);
      });
      ranks.Ballot(block, [&](int thread, int plane, int i) {
        return Magnitude(lanes[thread].acc[plane].at[i]) >= tau;
      });
      block.ForEach([&](int thread) {
        const uint32_t at = BlockOf(tile, round, thread);
        if (at >= chunk.count) return;
        const uint32_t slot = chunk.first_element + at;
        const uint32_t kept = ranks.ForEachKept(thread, [&](uint32_t rank, int plane, int i) {
          slots.positions[slot + rank] = at + Lane<4>::At(thread % kWarp, plane) + i;
          slots.values[slot + rank] = lanes[thread].acc[plane].at[i];
        });
        if (thread % kWarp == 0) slots.kept[chunk.first_block + at / kCodeBlock] = kept;
      });
    }
  }
};

// Levels as in compress/coding/sparse_values.h, with at most 16 significant bits.
struct Levels {
  float floor = 0;
  float step = 0;
};

constexpr float kSmallestLevel = std::bit_cast<float>(uint32_t{0x100});
constexpr float OneDown(float level) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(level) - 0x100);
}

// A value's code and its decoded value.
struct CodedValue {
  uint32_t code;
  float decoded;
};

struct Fp16Values {
  static constexpr uint8_t kFormat = 0;
  static constexpr int kLevels = 0;  // Number of levels in a frame.
  static constexpr int kBits = 16;
  static constexpr bool kMean = false;
  static constexpr Levels Choose(float, float, float) { return {}; }
  static constexpr CodedValue Code(const Levels&, float value) {
    const uint16_t code = ToHalf(value);
    return {code, FromHalf(code)};
  }
};

struct Int8Values {
  static constexpr uint8_t kFormat = 2;
  static constexpr int kLevels = 1;  // Number of levels in a frame.
  static constexpr int kBits = 8;
  static constexpr bool kMean = false;
  static constexpr Levels Choose(float largest, float, float) {
    float step = ToShortFloatUp(largest / 127);
    if (step < kSmallestLevel) step = kSmallestLevel;
    return {0, IsFinite(127 * step) ? step : OneDown(step)};
  }
  static constexpr CodedValue Code(const Levels& levels, float value) {
    const int code = static_cast<int>(Round(Clamp(value / levels.step, -127, 127)));
    return {static_cast<uint8_t>(code), static_cast<float>(code) * levels.step};
  }
};

struct Int4Values {
  static constexpr uint8_t kFormat = 1;
  static constexpr int kLevels = 2;  // Number of levels in a frame.
  static constexpr int kBits = 4;
  static constexpr bool kMean = false;
  static constexpr Levels Choose(float largest, float, float floor) {
    if (largest <= floor) return {floor, 0};
    const float step = ToShortFloatUp((largest - floor) / 7);
    return {floor, IsFinite(floor + 7 * step) ? step : OneDown(step)};
  }
  static constexpr CodedValue Code(const Levels& levels, float value) {
    const float above = Magnitude(value) - levels.floor;
    const float quotient = levels.step > 0 && above > 0 ? above / levels.step : 0;
    // Halves are rounded up.
    const float twice = quotient + quotient;
    const uint32_t q = (static_cast<uint32_t>(twice < 14 ? twice : 14.0f) + 1) >> 1;
    const float magnitude = levels.floor + static_cast<float>(q) * levels.step;
    return {q | (value < 0 ? 8u : 0u), value < 0 ? -magnitude : magnitude};
  }
};

// Only for decoding: processors encode this format.
struct TwoBitValues {
  static constexpr uint8_t kFormat = 4;
  static constexpr int kBits = 2;
};

struct SignValues {
  static constexpr uint8_t kFormat = 3;
  static constexpr int kLevels = 1;  // Number of levels in a frame.
  static constexpr int kBits = 1;
  static constexpr bool kMean = true;
  static constexpr Levels Choose(float, float mean, float) {
    const float step = ToShortFloat(mean);
    return {0, step < kSmallestLevel ? kSmallestLevel : step};
  }
  static constexpr CodedValue Code(const Levels& levels, float value) {
    return {value < 0 ? 1u : 0u, value < 0 ? -levels.step : levels.step};
  }
};

// Writes levels in the format of compress/coding/sparse_values.h.
template <class Values>
constexpr void StoreLevels(const Levels& levels, uint8_t* at) {
  if (Values::kLevels == 2) StoreShortFloat(levels.floor, at);
  if (Values::kLevels > 0) StoreShortFloat(levels.step, at + 3 * (Values::kLevels - 1));
}

// Calls copy(from, to) for each used slot of a chunk, so that the entries become adjacent. Returns
// the number of used slots. All threads can see the result.
template <class Block, class Copy>
constexpr uint32_t CompactSlots(Block& block, const Chunk& chunk, const uint32_t* kept, Copy copy) {
  const uint32_t blocks = (chunk.count + kCodeBlock - 1) / kCodeBlock;
  return ForEachSum(
      block, blocks, [&](uint32_t i) { return kept[chunk.first_block + i]; },
      [&](uint32_t i, uint32_t before) {
        const uint32_t from = chunk.first_element + i * kCodeBlock;
        const uint32_t to = chunk.first_element + before;
        const uint32_t count = kept[chunk.first_block + i];
        for (uint32_t j = 0; j < count; ++j) copy(from + j, to + j);
      });
}

// Shared memory for a block of threads that codes values.
struct ValuesScratch {
  static constexpr int kLanes = 8;
  double sums[kLanes];
};

// Returns the levels for `kept` values, in all threads.
template <class Values, class Block>
constexpr Levels ChooseLevels(Block& block, ValuesScratch& scratch, const float* values,
                              uint32_t kept, float floor) {
  constexpr uint32_t kThreads = Block::kWarps * kWarp;
  if (kept == 0) return {};
  typename Block::template Each<uint32_t> most;
  block.ForEach([&](int thread) {
    most[thread] = 0;
    for (uint32_t i = thread; i < kept; i += kThreads) {
      most[thread] = Max(most[thread], MagnitudeBits(values[i]));
    }
    if (!Values::kMean || thread >= ValuesScratch::kLanes) return;
    double sum = 0;
    for (uint32_t i = thread; i < kept; i += ValuesScratch::kLanes)
      sum += double{Magnitude(values[i])};
    scratch.sums[thread] = sum;
  });
  const uint32_t largest = block.Max(most);
  double total = 0;
  if (Values::kMean) {
    for (const double sum : scratch.sums) total += sum;
  }
  return Values::Choose(std::bit_cast<float>(largest),
                        static_cast<float>(total / static_cast<double>(kept)), floor);
}

// Writes a thread's share of the codes of `kept` values, in whole bytes. Calls coded(i, CodedValue)
// for each value.
template <class Values, int kThreads, class Coded>
constexpr void WriteCodes(const Levels& levels, const float* values, uint32_t kept, int thread,
                          uint8_t* codes, Coded coded) {
  constexpr uint32_t kTogether = Values::kBits < 8 ? 8 / Values::kBits : 1;
  for (uint32_t first = thread * kTogether; first < kept; first += kThreads * kTogether) {
    uint32_t bits = 0;
    for (uint32_t i = first; i < first + kTogether && i < kept; ++i) {
      const CodedValue value = Values::Code(levels, values[i]);
      bits |= value.code << ((i - first) * Values::kBits % 32);
      coded(i, value);
    }
    if constexpr (Values::kBits == 16) {
      StoreBytes<2>(bits, codes + 2 * uint64_t{first});
    } else {
      codes[first / kTogether] = static_cast<uint8_t>(bits);
    }
  }
}

template <class Values>
struct FinishSparse {
  static constexpr int kThreads = 256;
  using Shared = ValuesScratch;
  // Size of the part of the payload that precedes the positions.
  static constexpr uint32_t kOpening = 6 + 3 * Values::kLevels;

  const Chunk* chunks;
  const float* floors;  // For each chunk: the threshold of SelectAbove.
  IndexMode index_mode;
  // After packing, the positions' memory is used as a scratch buffer.
  Slots slots;
  // Positions and values without gaps, in memory of the same size as the slots. `kept` is not used.
  Slots packed;
  uint32_t* gaps;   // Memory of the same size as the slots.
  uint32_t* kept;   // Number of values in each chunk.
  uint32_t* sizes;  // Size of each chunk's payload in bytes.

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared& shared, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const uint32_t base = chunk.first_element;
    const uint32_t count = CompactSlots(block, chunk, slots.kept, [&](uint32_t from, uint32_t to) {
      packed.positions[to] = slots.positions[from];
      packed.values[to] = slots.values[from];
    });
    const uint32_t* const positions = packed.positions + base;
    const float* const values = packed.values + base;
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < count; i += kThreads) {
        gaps[base + i] = i == 0 ? positions[0] : positions[i] - positions[i - 1] - 1;
      }
    });
    block.Sync();
    const Gaps all{gaps + base, count, slots.positions + base};
    const uint32_t sum = count == 0 ? 0 : positions[count - 1] + 1 - count;
    const IndexLayout plan = PlanPositions(block, index_mode, all, sum);
    const Levels levels = ChooseLevels<Values>(block, shared, values, count, floors[index]);
    uint8_t* const codes = chunk.payload + kOpening + plan.first_bytes;
    uint8_t* const last = codes + BytesFor(uint64_t{count} * Values::kBits);
    block.ForEach([&](int thread) {
      if (thread == 0) {
        WriteOpening(plan, count, levels, chunk.payload);
        kept[index] = count;
        sizes[index] = static_cast<uint32_t>(last - chunk.payload + BytesFor(plan.last_bits));
      }
      const auto lose = [&](uint32_t i, const CodedValue& coded) {
        if (chunk.residual != nullptr) chunk.left[positions[i]] = values[i] - coded.decoded;
      };
      WriteCodes<Values, kThreads>(levels, values, count, thread, codes, lose);
    });
    WriteFirstPlanes(block, plan, all, chunk.payload + kOpening);
    WriteLastPlane(block, plan, all, last);
  }

 private:
  static constexpr void WriteOpening(const IndexLayout& plan, uint32_t count, const Levels& levels,
                                     uint8_t* at) {
    at[0] = Values::kFormat;
    at[1] = plan.coding;
    StoreBytes<4>(count, at + 2);
    StoreLevels<Values>(levels, at + 6);
  }
};

}  // namespace sluice::compress::gpu
