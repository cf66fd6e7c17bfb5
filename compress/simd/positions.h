// SPDX-License-Identifier: Apache-2.0
// Kernels of index coding: packing and unpacking numbers of a fixed width, sums of quotients, and
// the positions of ones. All kernels use integer arithmetic, so every instruction set gives the
// same results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_functions.h"

namespace sluice::compress {

// Number of bytes after the end of the output that packing may overwrite.
inline constexpr size_t kPackSlack = 16;

// Packs the lowest `width` bits (0 to 31) of each number, one after another, starting at the lowest
// bit. Pads the last byte with zeros.
void PackBits(const uint32_t* numbers, size_t count, int width, uint8_t* out);

// Unpacks a plane of `size` bytes that contains `count` numbers. `numbers` must have space for
// kUnpackSlack more.
inline constexpr size_t kUnpackSlack = 16;
void UnpackBits(const uint8_t* plane, size_t size, size_t count, int width, uint32_t* numbers);

struct BitsTotal {
  uint64_t sum = 0;
  uint64_t full = 0;  // Number of values whose bits are all ones.
};
// Sums `count` numbers of `width` bits at the beginning of a plane.
BitsTotal SumOfBits(const uint8_t* plane, size_t size, size_t count, int width);

// Number of divisors in QuotientSums. The divisors are 1, 2, 4, 8, 3, 6 and 12, each times a power
// of two.
inline constexpr size_t kDivisorCount = 7;
constexpr uint32_t DivisorAt(size_t i) { return i < 4 ? 1U << i : 3U << (i - 4); }
// Largest shifted number for which the kernel's division by three is exact.
inline constexpr uint32_t kLargestForThree = 98303;

struct QuotientSums {
  uint64_t sums[kDivisorCount];  // Sums of numbers[i] / (DivisorAt(j) << shift).
  uint32_t largest;
};
// Computes the sums. The sum of the numbers must be below 2^32. The last three results are correct
// only if largest >> shift is at most kLargestForThree.
void SumQuotients(const uint32_t* numbers, size_t count, int shift, QuotientSums* result);

// Writes each number in unary to `plane`: one zero for each unit of its quotient, then a one.
// `plane` must contain zeros and must be followed by kPackSlack bytes. The quotient is (numbers[i]
// >> shift) / 3 with `by_three`, and otherwise numbers[i] >> shift.
void SetOnes(const uint32_t* numbers, size_t count, int shift, bool by_three, uint8_t* plane);

// Packs the remainders of (numbers[i] >> shift) by 3, five to a byte.
void PackThirds(const uint32_t* numbers, size_t count, int shift, uint8_t* out);

// Blocks have 16 numbers; the last block may be shorter. Each block has its own parameter b =
// bit_width(sum / 32), at most 15, which is near the best value for any mixture of numbers.
inline constexpr size_t kRiceBlock = 16;
inline constexpr int kBlockParameterMax = 15;
constexpr int BlockParameter(uint32_t sum) {
  const int width = BitWidth(sum / static_cast<uint32_t>(2 * kRiceBlock));
  return width < kBlockParameterMax ? width : kBlockParameterMax;
}
struct BlockSizes {
  // Bytes for the b low bits of all numbers. Each block takes whole bytes.
  uint64_t low_bytes;
  uint64_t quotients;  // Sum of the numbers without their low bits.
};
// The sum of the numbers must be below 2^32; this also holds for the functions below.
BlockSizes SizeOfBlocks(const uint32_t* numbers, size_t count);
// Writes the parameters (two to a byte, the first in the lower half) and the low bits. `lows` must
// be followed by kPackSlack bytes.
void PackBlocks(const uint32_t* numbers, size_t count, uint8_t* parameters, uint8_t* lows);
// Works like SetOnes, but with the quotients of blocks.
void SetOnesOfBlocks(const uint32_t* numbers, size_t count, uint8_t* plane);

// State of FindOnes between calls: a position in a plane.
struct OnesCursor {
  uint64_t word = 0;  // Unread bits of the current word.
  uint64_t base = 0;  // Index of the first bit of the word.
  size_t next = 0;    // Index of the byte after the word.
};
// Writes the positions of the next `wanted` ones, or of fewer at the end of the plane, and returns
// their number. `ones` must have space for kOnesSlack more.
inline constexpr size_t kOnesSlack = 64;
size_t FindOnes(const uint8_t* plane, size_t size, size_t wanted, OnesCursor* cursor,
                uint32_t* ones);

// Computes the next positions. The gaps are (quotient << shift) + low, or (3 quotient << shift) +
// low. FindOnes provides `ones`, and `first` is the index of the first of them. `*run` carries a
// sum from call to call and must be 0 before the first call.
void AddQuotients(const uint32_t* ones, const uint32_t* lows, size_t count, uint32_t first,
                  int shift, bool by_three, uint32_t* run, uint32_t* positions);

// State of AddBlocks between calls.
struct BlockCursor {
  // Count of the numbers read so far. It is a multiple of kRiceBlock until the end.
  size_t done = 0;
  size_t low_at = 0;       // Index of the next byte in the plane of low bits.
  uint32_t quotients = 0;  // Sum of the quotients so far.
};
// Computes the next positions from blocks. FindOnes provides `ones`, which has `count` entries;
// `lows` is the whole plane. `*run` has 64 bits, so that the caller can detect malformed planes.
// Positions are the lower half of `*run`.
void AddBlocks(const uint32_t* ones, size_t count, const uint8_t* parameters, const uint8_t* lows,
               size_t lows_size, BlockCursor* cursor, uint64_t* run, uint32_t* positions);

// Computes the next positions from codes. Each code is a gap, except that after the code `escape`
// the gap continues with the next code. Returns the number of positions. `positions` must have
// space for `count` + 1.
size_t AddCodes(const uint32_t* codes, size_t count, uint32_t escape, uint32_t* run,
                uint32_t* positions);
// Works like AddCodes, but reads codes from bytes, with escape 255.
size_t AddBytes(const uint8_t* codes, size_t count, uint32_t* run, uint32_t* positions);

}  // namespace sluice::compress
