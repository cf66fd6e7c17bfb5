// SPDX-License-Identifier: Apache-2.0
// Selects the coding of a list of numbers from sums over the numbers, and computes the sizes of the
// coding's planes. The encoders on a processor and on a GPU share this code. docs/wire-format.md
// defines the rules. base/float_bits.h explains why the functions are constexpr.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/device_functions.h"
#include "compress/simd/positions.h"

namespace sluice::compress {

constexpr size_t BytesFor(uint64_t bits) { return static_cast<size_t>((bits + 7) / 8); }
constexpr size_t RemainderBytes(size_t count, int parameter) {
  return BytesFor(uint64_t{count} * static_cast<uint64_t>(parameter));
}

// Rice coding of arbitrary numbers.
inline constexpr int kRiceParameterMax = 31;

struct RicePlan {
  int parameter = 0;        // Bits per number in the remainder plane.
  uint64_t unary_bits = 0;  // Size of the unary plane.
};

// Returns the best or second-best parameter for `count` numbers. shifted(s) must return the sum of
// (number >> s) over all numbers. Both planes together have at most min(sum + count, count * (1 +
// bit width of the largest)) bits.
template <class Shifted>
constexpr RicePlan ChooseRice(size_t count, uint32_t largest, Shifted shifted) {
  if (count == 0) return {};
  const uint64_t sum = shifted(0);
  // For geometric numbers with this mean, the best parameter is near log2(0.69 * mean).
  const int middle = BitWidth((sum + count) * 11 / 16 / count);
  const int widest = Min(BitWidth(largest), kRiceParameterMax);
  RicePlan best{.parameter = 0, .unary_bits = sum + count};
  uint64_t best_bits = best.unary_bits;
  const int candidates[] = {middle - 2, middle - 1, middle, widest};
  for (const int parameter : candidates) {
    if (parameter < 1 || parameter > kRiceParameterMax) continue;
    const uint64_t unary = shifted(parameter) + count;
    const uint64_t bits = unary + count * static_cast<uint64_t>(parameter);
    if (bits < best_bits) {
      best = {.parameter = parameter, .unary_bits = unary};
      best_bits = bits;
    }
  }
  return best;
}

// The first coding of positions that has a divisor 3 * 2^b.
inline constexpr int kThirdsFirst = 32;
inline constexpr int kThirdsParameterMax = 29;
// The first coding of positions that uses codes of w bits.
inline constexpr int kCodesFirst = 64;
inline constexpr int kCodeWidthMax = 16;
inline constexpr uint8_t kBlocksCoding = 96;  // Rice coding with a parameter for each block.
inline constexpr size_t kThirdsPerByte = 5;

constexpr bool HasCodes(uint8_t coding) { return coding >= kCodesFirst && coding < kBlocksCoding; }
constexpr bool HasThirds(uint8_t coding) { return coding >= kThirdsFirst && coding < kCodesFirst; }
constexpr int ParameterOf(uint8_t coding) { return coding % kThirdsFirst; }
constexpr int WidthOf(uint8_t coding) { return coding - kCodesFirst; }

constexpr size_t RiceBlocks(size_t kept) { return (kept + kRiceBlock - 1) / kRiceBlock; }
constexpr size_t ParameterBytes(size_t kept) { return (RiceBlocks(kept) + 1) / 2; }
constexpr size_t ThirdsBytes(size_t kept) { return (kept + kThirdsPerByte - 1) / kThirdsPerByte; }

// Returns the size of the planes that precede the values. Must not be called for kBlocksCoding.
constexpr size_t FirstBytes(uint8_t coding, size_t kept) {
  if (HasCodes(coding)) return 0;
  return RemainderBytes(kept, ParameterOf(coding)) + (HasThirds(coding) ? ThirdsBytes(kept) : 0);
}

enum class IndexMode : uint8_t { kAuto, kRice, kPacked, kBytes, kBitmap };

struct IndexLayout {
  uint8_t coding = 0;
  // Size of the planes that AppendFirstPlanes writes.
  size_t first_bytes = 0;
  // Size of the plane that AppendLastPlane writes.
  uint64_t last_bits = 0;
};

// Selects the candidate with the fewest bytes. If several are equal, the first one is selected.
class PositionChoice {
 public:
  constexpr explicit PositionChoice(size_t kept) : kept_(kept) {}

  constexpr void Offer(int coding, uint64_t last_bits) {
    const auto name = static_cast<uint8_t>(coding);
    Offer({.coding = name, .first_bytes = FirstBytes(name, kept_), .last_bits = last_bits});
  }
  constexpr void Offer(const IndexLayout& plan) {
    const uint64_t bytes = plan.first_bytes + BytesFor(plan.last_bits);
    if (bytes >= best_bytes_) return;
    best_bytes_ = bytes;
    best_ = plan;
  }
  constexpr const IndexLayout& best() const { return best_; }

 private:
  const size_t kept_;
  uint64_t best_bytes_ = std::numeric_limits<uint64_t>::max();
  IndexLayout best_;
};

// Offers divisors near 0.69 times the mean gap, which is the best divisor for geometric gaps, and
// then offers blocks. Returns the largest gap.
template <class Sums>
constexpr uint32_t OfferRice(size_t kept, uint64_t sum, Sums& sums, PositionChoice* choice) {
  choice->Offer(0, sum + kept);
  const int middle = BitWidth((sum + kept) * 11 / 16 / kept);
  const int shift = Max(middle - 3, 0);
  const QuotientSums quotients = sums.Quotients(shift);
  const bool thirds = (quotients.largest >> shift) <= kLargestForThree;
  for (size_t i = 0; i < kDivisorCount; ++i) {
    const bool by_three = DivisorAt(i) % 3 == 0;
    if (by_three && !thirds) continue;
    const int parameter = shift + CountTrailingZeros(DivisorAt(i));
    if (parameter > (by_three ? kThirdsParameterMax : kRiceParameterMax)) continue;
    choice->Offer((by_three ? kThirdsFirst : 0) + parameter, quotients.sums[i] + kept);
  }
  const BlockSizes blocks = sums.Blocks();
  choice->Offer({.coding = kBlocksCoding,
                 .first_bytes = static_cast<size_t>(ParameterBytes(kept) + blocks.low_bytes),
                 .last_bits = blocks.quotients + kept});
  return quotients.largest;
}

// Offers the narrowest codes that need no escapes, or the widest codes if all need escapes. `all`
// is true if the mode allows no other coding. The function then also offers some codes that suit
// geometric gaps, and codes of 1 bit, which never take more bytes than a bitmap.
template <class Sums>
constexpr void OfferCodes(size_t kept, uint64_t sum, uint32_t largest, bool all, Sums& sums,
                          PositionChoice* choice) {
  const auto offer = [&](int width) {
    choice->Offer(kCodesFirst + width, sums.Codes(width, largest) * static_cast<uint64_t>(width));
  };
  offer(Min(BitWidth(uint64_t{largest} + 1), kCodeWidthMax));
  if (!all) return;
  choice->Offer(kCodesFirst + 1, sum + kept);
  const int middle = BitWidth((sum + kept) / kept);
  for (int width = Max(middle, 2); width <= Min(middle + 2, kCodeWidthMax); ++width) {
    offer(width);
  }
}

// Returns the coding for `kept` gaps that has the fewest bytes among those that `mode` allows.
// `sum` is the sum of the gaps, which must be below 2^32. `sums` has these members, each of which
// covers all gaps:
//   QuotientSums Quotients(int shift);              // Exact, like SumQuotients.
//   BlockSizes Blocks();                            // Like SizeOfBlocks.
//   uint64_t Codes(int width, uint32_t largest);    // Number of codes for the gaps.
//   uint32_t Largest();
template <class Sums>
constexpr IndexLayout ChoosePositions(IndexMode mode, size_t kept, uint64_t sum, Sums& sums) {
  if (kept == 0) return {};
  PositionChoice choice(kept);
  switch (mode) {
    case IndexMode::kAuto:
      OfferCodes(kept, sum, OfferRice(kept, sum, sums, &choice), /*all=*/false, sums, &choice);
      break;
    case IndexMode::kRice:
      OfferRice(kept, sum, sums, &choice);
      break;
    case IndexMode::kPacked:
      OfferCodes(kept, sum, sums.Largest(), /*all=*/true, sums, &choice);
      break;
    case IndexMode::kBytes:
      choice.Offer(kCodesFirst + 8, sums.Codes(8, sums.Largest()) * 8);
      break;
    case IndexMode::kBitmap:
      choice.Offer(0, sum + kept);
      break;
  }
  return choice.best();
}

}  // namespace sluice::compress
