// SPDX-License-Identifier: Apache-2.0
// Kernels that add frames of the formats sparse and ternary (docs/wire-format.md) to dense sums,
// with one block of threads per chunk. A thread works serially only within a word:
//   - Ends of numbers: a thread counts the ones in 32 bits of the unary plane, or decides whether a
//     code ends a gap. The block computes the sums of the counts.
//   - Gaps: a thread computes each gap from its end and the end before it, and from its low bits,
//     which are at a known offset.
//   - Positions: the block computes the sums of the gaps.
// The caller must have validated the payloads. Kernels read payloads byte by byte, because planes
// are not aligned.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/sparse.h"
#include "compress/gpu/kernels/ternary.h"

namespace sluice::compress::gpu {

// Returns number i of a plane of numbers of `width` bits, 0 to 31. Reads only bytes that contain a
// part of the number.
constexpr uint32_t NumberAt(const uint8_t* plane, uint32_t i, int width) {
  const uint64_t bit = uint64_t{i} * static_cast<uint64_t>(width);
  const int shift = static_cast<int>(bit % 8);
  uint64_t word = 0;
  for (int filled = 0; filled < shift + width; filled += 8) {
    word |= uint64_t{plane[(bit + filled) / 8]} << filled;
  }
  return static_cast<uint32_t>(word >> shift & ((uint64_t{1} << width) - 1));
}

// Buffers with one number for each element of all chunks. A chunk's numbers begin at
// Chunk::first_element.
struct AddScratch {
  uint32_t* ends;
  uint32_t* offsets;
  uint32_t* positions;

  constexpr AddScratch Of(const Chunk& chunk) const {
    const uint32_t at = chunk.first_element;
    return {ends + at, offsets + at, positions + at};
  }
};

// Sets ends[i] to the position of one-bit number i of the plane. Ends with a Sync.
template <class Block>
constexpr void FindOnes(Block& block, const uint8_t* plane, uint32_t bytes, uint32_t* ends) {
  const auto word = [&](uint32_t i) {
    uint32_t bits = 0;
    for (uint32_t j = 0; j < 4 && 4 * i + j < bytes; ++j) {
      bits |= uint32_t{plane[4 * i + j]} << (8 * j);
    }
    return bits;
  };
  ForEachSum(
      block, (bytes + 3) / 4, [&](uint32_t i) { return static_cast<uint32_t>(PopCount(word(i))); },
      [&](uint32_t i, uint32_t before) {
        for (uint32_t bits = word(i); bits != 0; bits &= bits - 1) {
          ends[before++] = 32 * i + static_cast<uint32_t>(CountTrailingZeros(bits));
        }
      });
}

// Returns the number of zeros between one-bit number i and the previous one-bit.
constexpr uint32_t ZerosBefore(const uint32_t* ends, uint32_t i) {
  return i == 0 ? ends[0] : ends[i] - ends[i - 1] - 1;
}

// Positions in the format of compress/coding/position_coding.h.
class PositionPlanes {
 public:
  constexpr PositionPlanes(uint8_t coding, uint32_t kept, const AddScratch& scratch)
      : coding_(coding), kept_(kept), scratch_(scratch) {}

  // Reads the first planes, which begin at `at`. Returns the address after them.
  template <class Block>
  constexpr const uint8_t* ReadFirst(Block& block, const uint8_t* at) {
    if (coding_ != kBlocksCoding) {
      lows_ = at;
      return at + FirstBytes(coding_, kept_);
    }
    const auto blocks = static_cast<uint32_t>(RiceBlocks(kept_));
    parameters_ = at;
    lows_ = at + ParameterBytes(kept_);
    return lows_ + ForEachSum(
                       block, blocks,
                       [&](uint32_t i) {
                         const auto size = static_cast<uint32_t>(kRiceBlock);
                         return static_cast<uint32_t>(
                             RemainderBytes(Min(size, kept_ - i * size), Parameter(i)));
                       },
                       [&](uint32_t i, uint32_t before) { scratch_.offsets[i] = before; });
  }

  // Writes all positions to the scratch buffer. Ends with a Sync.
  template <class Block>
  constexpr void ReadLast(Block& block, const uint8_t* at, uint32_t bytes) {
    last_ = at;
    if (HasCodes(coding_)) {
      FindLastCodes(block, bytes);
    } else {
      FindOnes(block, last_, bytes, scratch_.ends);
    }
    ForEachSum(
        block, kept_, [&](uint32_t i) { return Gap(i) + 1; },
        [&](uint32_t i, uint32_t before) { scratch_.positions[i] = before + Gap(i); });
  }

 private:
  constexpr int Parameter(uint32_t rice_block) const {
    return parameters_[rice_block / 2] >> (rice_block % 2 * 4) & kBlockParameterMax;
  }

  // Finds the last code of each gap.
  template <class Block>
  constexpr void FindLastCodes(Block& block, uint32_t bytes) {
    const int width = WidthOf(coding_);
    const uint32_t escape = (uint32_t{1} << width) - 1;
    const auto is_last = [&](uint32_t i) { return NumberAt(last_, i, width) != escape ? 1u : 0u; };
    ForEachSum(block, static_cast<uint32_t>(uint64_t{bytes} * 8 / static_cast<unsigned>(width)),
               is_last, [&](uint32_t i, uint32_t before) {
                 // The padding of the last byte may look like additional codes.
                 if (before < kept_ && is_last(i) != 0) scratch_.ends[before] = i;
               });
  }

  constexpr uint32_t Gap(uint32_t i) const {
    const uint32_t quotient = ZerosBefore(scratch_.ends, i);
    if (HasCodes(coding_)) {
      const int width = WidthOf(coding_);
      return quotient * ((uint32_t{1} << width) - 1) + NumberAt(last_, scratch_.ends[i], width);
    }
    const auto size = static_cast<uint32_t>(kRiceBlock);
    if (coding_ == kBlocksCoding) {
      const int parameter = Parameter(i / size);
      const uint8_t* const lows = lows_ + scratch_.offsets[i / size];
      return (quotient << parameter) + NumberAt(lows, i % size, parameter);
    }
    const int parameter = ParameterOf(coding_);
    const uint32_t low = NumberAt(lows_, i, parameter);
    if (!HasThirds(coding_)) return (quotient << parameter) + low;
    const auto each = static_cast<uint32_t>(kThirdsPerByte);
    uint32_t digits = lows_[RemainderBytes(kept_, parameter) + i / each];
    for (uint32_t j = 0; j < i % each; ++j) digits /= 3;
    return ((3 * quotient + digits % 3) << parameter) + low;
  }

  uint8_t coding_;
  uint32_t kept_;
  AddScratch scratch_;
  const uint8_t* parameters_ = nullptr;
  const uint8_t* lows_ = nullptr;  // Contains the low bits and the remainders modulo 3.
  const uint8_t* last_ = nullptr;
};

// Values of a frame, in the format of compress/coding/sparse_values.h.
class SparseValues {
 public:
  constexpr explicit SparseValues(uint8_t format) : format_(format) {}

  // Reads the levels, which begin at `at`. Returns the address after them.
  constexpr const uint8_t* ReadLevels(const uint8_t* at) {
    if (HasFloor()) {
      levels_.floor = LoadShortFloat(at);
      at += 3;
    }
    if (format_ == Fp16Values::kFormat) return at;
    levels_.step = LoadShortFloat(at);
    return at + 3;
  }
  // Reads the codes, which begin at `at`. Returns the address after them.
  constexpr const uint8_t* ReadCodes(const uint8_t* at, uint32_t kept) {
    codes_ = at;
    return at + BytesFor(uint64_t{kept} * static_cast<unsigned>(Bits()));
  }

  constexpr float At(uint32_t i) const {
    if (format_ == Fp16Values::kFormat) {
      return FromHalf(LoadBytes<uint16_t>(codes_ + 2 * uint64_t{i}));
    }
    if (format_ == Int8Values::kFormat) {
      return static_cast<float>(static_cast<int8_t>(codes_[i])) * levels_.step;
    }
    const uint32_t code = NumberAt(codes_, i, Bits());
    // The last bit of a code is the sign. The others are a number of steps above the floor.
    const int sign_at = Bits() - 1;
    const auto steps = static_cast<float>(code & ((1U << sign_at) - 1));
    const float magnitude = HasFloor() ? levels_.floor + steps * levels_.step : levels_.step;
    const uint32_t sign = code >> sign_at << 31;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }

 private:
  constexpr int Bits() const {
    return format_ == Fp16Values::kFormat     ? Fp16Values::kBits
           : format_ == Int8Values::kFormat   ? Int8Values::kBits
           : format_ == Int4Values::kFormat   ? Int4Values::kBits
           : format_ == TwoBitValues::kFormat ? TwoBitValues::kBits
                                              : SignValues::kBits;
  }
  constexpr bool HasFloor() const {
    return format_ == Int4Values::kFormat || format_ == TwoBitValues::kFormat;
  }

  uint8_t format_;
  Levels levels_;
  const uint8_t* codes_ = nullptr;
};

// Adds a chunk's payload to `sum`.
struct AddSparse {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  const uint32_t* sizes;  // Size of each chunk's payload in bytes.
  AddScratch scratch;

  // Block `index` handles chunk `index`.
  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const AddScratch own = scratch.Of(chunk);
    const auto kept = LoadBytes<uint32_t>(chunk.payload + 2);
    SparseValues values(chunk.payload[0]);
    PositionPlanes planes(chunk.payload[1], kept, own);
    const uint8_t* const first = values.ReadLevels(chunk.payload + 6);
    const uint8_t* const last = values.ReadCodes(planes.ReadFirst(block, first), kept);
    planes.ReadLast(block, last, sizes[index] - static_cast<uint32_t>(last - chunk.payload));
    block.ForEach([&](int thread) {
      for (uint32_t i = thread; i < kept; i += kThreads) {
        chunk.sum[own.positions[i]] += values.At(i);
      }
    });
  }
};

struct AddTernary {
  static constexpr int kThreads = 256;
  struct Shared {};

  const Chunk* chunks;
  const uint32_t* sizes;
  AddScratch scratch;

  template <class Block>
  constexpr void operator()(Block& block, Shared&, uint32_t index) const {
    const Chunk chunk = chunks[index];
    const AddScratch own = scratch.Of(chunk);
    const int parameter = chunk.payload[1];
    const auto kept = LoadBytes<uint32_t>(chunk.payload + 2);
    const auto scales = LoadBytes<uint32_t>(chunk.payload + 6);
    const auto unary_bytes = LoadBytes<uint32_t>(chunk.payload + 10);
    PositionPlanes planes(chunk.payload[0], kept, own);
    const uint8_t* const signs = planes.ReadFirst(block, chunk.payload + FinishTernary::kOpening);
    const uint8_t* const lows = signs + BytesFor(kept);
    const uint8_t* const unary = lows + RemainderBytes(scales, parameter);
    const uint8_t* const last = unary + unary_bytes;
    planes.ReadLast(block, last, sizes[index] - static_cast<uint32_t>(last - chunk.payload));
    // The buffer of offsets is reused for the code of each scale.
    FindOnes(block, unary, unary_bytes, own.ends);
    const auto step = [&](uint32_t i) {
      const uint32_t folded =
          (ZerosBefore(own.ends, i) << parameter) + NumberAt(lows, i, parameter);
      return folded >> 1 ^ (0 - (folded & 1));
    };
    ForEachSum(block, scales, step,
               [&](uint32_t i, uint32_t before) { own.offsets[i] = before + step(i); });
    const auto begins = [&](uint32_t i) {
      const uint32_t* const at = own.positions + i;
      return i == 0 || at[0] / kCodeBlock != at[-1] / kCodeBlock ? 1u : 0u;
    };
    ForEachSum(block, kept, begins, [&](uint32_t i, uint32_t before) {
      const uint32_t scale = own.offsets[before + begins(i) - 1] << kTernaryShift;
      const uint32_t sign = NumberAt(signs, i, 1) << 31;
      chunk.sum[own.positions[i]] += std::bit_cast<float>(scale | sign);
    });
  }
};

}  // namespace sluice::compress::gpu
