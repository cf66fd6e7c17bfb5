// Kernels of index coding: numbers of a fixed width into bits and back, sums of quotients, and the
// places of ones. All are integer arithmetic, so that every instruction set gives the same.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Beyond its last byte, what is packed into must have room for so many.
inline constexpr size_t kPackSlack = 16;

// The lowest `width` bits (0 to 31) of each number, one after the other from the lowest bit on; the
// last byte is filled with zeros.
void PackBits(const uint32_t* numbers, size_t count, int width, uint8_t* out);

// The other way round, for a plane of `size` bytes that holds that many; `numbers` has room for
// kUnpackSlack more.
inline constexpr size_t kUnpackSlack = 16;
void UnpackBits(const uint8_t* plane, size_t size, size_t count, int width, uint32_t* numbers);

struct BitsTotal {
  uint64_t sum = 0;
  uint64_t full = 0;  // Numbers whose bits are all ones.
};
// Of the numbers of `width` bits at the front of a plane.
BitsTotal SumOfBits(const uint8_t* plane, size_t size, size_t count, int width);

// Divisors of QuotientSums, times a power of two: 1, 2, 4, 8, 3, 6, 12.
inline constexpr size_t kDivisorCount = 7;
constexpr uint32_t DivisorAt(size_t i) { return i < 4 ? 1U << i : 3U << (i - 4); }
// Up to here a division by three of a shifted number is exact.
inline constexpr uint32_t kLargestForThree = 98303;

struct QuotientSums {
  uint64_t sums[kDivisorCount];  // Of numbers[i] / (DivisorAt(j) << shift).
  uint32_t largest;
};
// The numbers' sum is below 2^32. The last three sums are right only if largest >> shift is at most
// kLargestForThree.
void SumQuotients(const uint32_t* numbers, size_t count, int shift, QuotientSums* result);

// For each number, as many zeros as its quotient and a one, in `plane`, which is zeros and has
// kPackSlack. The quotient is (numbers[i] >> shift) / 3 with `by_three`, otherwise
// numbers[i] >> shift.
void SetOnes(const uint32_t* numbers, size_t count, int shift, bool by_three, uint8_t* plane);

// The remainders of numbers[i] >> shift by 3, five to a byte.
void PackThirds(const uint32_t* numbers, size_t count, int shift, uint8_t* out);

// Blocks of 16 numbers, the last one shorter, each with a parameter b of its own: bit_width(sum /
// 32), at most 15, which is near the best for any mixture.
inline constexpr size_t kRiceBlock = 16;
inline constexpr int kBlockParameterMax = 15;
constexpr int BlockParameter(uint32_t sum) {
  const int width = static_cast<int>(std::bit_width(sum / static_cast<uint32_t>(2 * kRiceBlock)));
  return width < kBlockParameterMax ? width : kBlockParameterMax;
}
struct BlockSizes {
  uint64_t low_bytes;  // Of b low bits of each number; each block has whole bytes.
  uint64_t quotients;  // The sum of the numbers without these bits.
};
// The numbers' sum is below 2^32, here and below.
BlockSizes SizeOfBlocks(const uint32_t* numbers, size_t count);
// Writes the parameters, two to a byte, the first one lower, and the low bits. `lows` has
// kPackSlack.
void PackBlocks(const uint32_t* numbers, size_t count, uint8_t* parameters, uint8_t* lows);
// As SetOnes, with the blocks' quotients.
void SetOnesOfBlocks(const uint32_t* numbers, size_t count, uint8_t* plane);

// Where the ones of a plane are, in order, as many at a time as one asks for.
struct OnesCursor {
  uint64_t word = 0;  // What is left of the current word.
  uint64_t base = 0;  // Its first bit's number.
  size_t next = 0;    // The byte after it.
};
// Writes up to `wanted` numbers of bits and returns how many; fewer only at the end. `ones` has
// room for kOnesSlack more.
inline constexpr size_t kOnesSlack = 64;
size_t FindOnes(const uint8_t* plane, size_t size, size_t wanted, OnesCursor* cursor,
                uint32_t* ones);

// The next positions, whose gaps are (quotient << shift) + low, or (3 quotient << shift) + low:
// `ones` are from FindOnes, `first` is the number of the first of them, `*run` what earlier calls
// left there (0 at first).
void AddQuotients(const uint32_t* ones, const uint32_t* lows, size_t count, uint32_t first,
                  int shift, bool by_three, uint32_t* run, uint32_t* positions);

// What AddBlocks goes on from.
struct BlockCursor {
  size_t done = 0;         // Numbers that were read; a multiple of kRiceBlock until the last.
  size_t low_at = 0;       // The next byte of the plane of low bits.
  uint32_t quotients = 0;  // The sum so far.
};
// The next positions from blocks: `ones` from FindOnes, as many as `count`; `lows` is the whole
// plane. `*run` goes on in 64 bits, so that one can see where planes lie; positions are its lower
// half.
void AddBlocks(const uint32_t* ones, size_t count, const uint8_t* parameters, const uint8_t* lows,
               size_t lows_size, BlockCursor* cursor, uint64_t* run, uint32_t* positions);

// The next positions from codes that are gaps, but that `escape` goes on with the next code;
// returns how many. `positions` has room for `count` and one more.
size_t AddCodes(const uint32_t* codes, size_t count, uint32_t escape, uint32_t* run,
                uint32_t* positions);
// Likewise from bytes, with escape 255.
size_t AddBytes(const uint8_t* codes, size_t count, uint32_t* run, uint32_t* positions);

}  // namespace sluice::compress
