// Which coding numbers get, from sums over them alone, and how large its planes are: what encoders
// on a processor and on a GPU share. docs/wire-format.md has the rules. Constexpr, as
// float_bits.h is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compress/simd/positions.h"

namespace sluice::compress {

constexpr size_t BytesFor(uint64_t bits) { return static_cast<size_t>((bits + 7) / 8); }
constexpr size_t RemainderBytes(size_t count, int parameter) {
  return BytesFor(uint64_t{count} * static_cast<uint64_t>(parameter));
}

// Rice coding of any numbers.
inline constexpr int kRiceParameterMax = 31;

struct RicePlan {
  int parameter = 0;        // Bits per number in the remainder plane.
  uint64_t unary_bits = 0;  // Size of the unary plane.
};

// The parameter that is best, or next to best, for `count` numbers; shifted(s) is the sum of all
// numbers >> s. The bits of both planes are at most
// min(sum + count, count * (1 + bit width of the largest)).
template <class Shifted>
constexpr RicePlan ChooseRice(size_t count, uint32_t largest, Shifted shifted) {
  if (count == 0) return {};
  const uint64_t sum = shifted(0);
  // Geometric numbers of this mean want a parameter near log2(0.69 * mean).
  const int middle = static_cast<int>(std::bit_width((sum + count) * 11 / 16 / count));
  const int most = kRiceParameterMax;  // std::min takes an address; a GPU has none of a constant.
  const int widest = std::min(static_cast<int>(std::bit_width(largest)), most);
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

// Codings of positions.
inline constexpr int kThirdsFirst = 32;  // Codings from here on have a divisor 3 * 2^b,
inline constexpr int kThirdsParameterMax = 29;
inline constexpr int kCodesFirst = 64;  // and from here on codes of w bits.
inline constexpr int kCodeWidthMax = 16;
inline constexpr uint8_t kBlocksCoding = 96;  // Rice with a parameter for each block.
inline constexpr size_t kThirdsPerByte = 5;

constexpr bool HasCodes(uint8_t coding) { return coding >= kCodesFirst && coding < kBlocksCoding; }
constexpr bool HasThirds(uint8_t coding) { return coding >= kThirdsFirst && coding < kCodesFirst; }
constexpr int ParameterOf(uint8_t coding) { return coding % kThirdsFirst; }
constexpr int WidthOf(uint8_t coding) { return coding - kCodesFirst; }

constexpr size_t RiceBlocks(size_t kept) { return (kept + kRiceBlock - 1) / kRiceBlock; }
constexpr size_t ParameterBytes(size_t kept) { return (RiceBlocks(kept) + 1) / 2; }
constexpr size_t ThirdsBytes(size_t kept) { return (kept + kThirdsPerByte - 1) / kThirdsPerByte; }

// Of the planes before the values; not with kBlocksCoding.
constexpr size_t FirstBytes(uint8_t coding, size_t kept) {
  if (HasCodes(coding)) return 0;
  return RemainderBytes(kept, ParameterOf(coding)) + (HasThirds(coding) ? ThirdsBytes(kept) : 0);
}

enum class IndexMode : uint8_t { kAuto, kRice, kPacked, kBytes, kBitmap };

struct PositionPlan {
  uint8_t coding = 0;
  size_t first_bytes = 0;  // Of the planes that AppendFirstPlanes writes,
  uint64_t last_bits = 0;  // and of that of AppendLastPlane.
};

// Takes the candidate with the fewest bytes, of equal ones the first.
class PositionChoice {
 public:
  constexpr explicit PositionChoice(size_t kept) : kept_(kept) {}

  constexpr void Offer(int coding, uint64_t last_bits) {
    const auto name = static_cast<uint8_t>(coding);
    Offer({.coding = name, .first_bytes = FirstBytes(name, kept_), .last_bits = last_bits});
  }
  constexpr void Offer(const PositionPlan& plan) {
    const uint64_t bytes = plan.first_bytes + BytesFor(plan.last_bits);
    if (bytes >= best_bytes_) return;
    best_bytes_ = bytes;
    best_ = plan;
  }
  constexpr const PositionPlan& best() const { return best_; }

 private:
  const size_t kept_;
  uint64_t best_bytes_ = std::numeric_limits<uint64_t>::max();
  PositionPlan best_;
};

// Divisors around the one that suits geometric gaps of this mean, which is 0.69 times it; and
// blocks. Returns the largest gap.
template <class Sums>
constexpr uint32_t OfferRice(size_t kept, uint64_t sum, Sums& sums, PositionChoice* choice) {
  choice->Offer(0, sum + kept);
  const int middle = static_cast<int>(std::bit_width((sum + kept) * 11 / 16 / kept));
  const int shift = std::max(middle - 3, 0);
  const QuotientSums quotients = sums.Quotients(shift);
  const bool thirds = (quotients.largest >> shift) <= kLargestForThree;
  for (size_t i = 0; i < kDivisorCount; ++i) {
    const bool by_three = DivisorAt(i) % 3 == 0;
    if (by_three && !thirds) continue;
    const int parameter = shift + std::countr_zero(DivisorAt(i));
    if (parameter > (by_three ? kThirdsParameterMax : kRiceParameterMax)) continue;
    choice->Offer((by_three ? kThirdsFirst : 0) + parameter, quotients.sums[i] + kept);
  }
  const BlockSizes blocks = sums.Blocks();
  choice->Offer({.coding = kBlocksCoding,
                 .first_bytes = static_cast<size_t>(ParameterBytes(kept) + blocks.low_bytes),
                 .last_bits = blocks.quotients + kept});
  return quotients.largest;
}

// The narrowest codes without escapes, or the widest there are; where these are not the only ones
// that are asked for, also some that suit geometric gaps, and those of 1 bit, which are never more
// than a bitmap.
template <class Sums>
constexpr void OfferCodes(size_t kept, uint64_t sum, uint32_t largest, bool all, Sums& sums,
                          PositionChoice* choice) {
  const auto offer = [&](int width) {
    choice->Offer(kCodesFirst + width, sums.Codes(width, largest) * static_cast<uint64_t>(width));
  };
  const int widest = kCodeWidthMax;
  offer(std::min(static_cast<int>(std::bit_width(uint64_t{largest} + 1)), widest));
  if (!all) return;
  choice->Offer(kCodesFirst + 1, sum + kept);
  const int middle = static_cast<int>(std::bit_width((sum + kept) / kept));
  for (int width = std::max(middle, 2); width <= std::min(middle + 2, widest); ++width) {
    offer(width);
  }
}

// The coding for `kept` gaps: what `mode` asks for, and of that the one with the fewest bytes.
// `sum` is the gaps' sum, below 2^32. `sums` has
//   QuotientSums Quotients(int shift);              // Exact, as SumQuotients.
//   BlockSizes Blocks();                            // As SizeOfBlocks.
//   uint64_t Codes(int width, uint32_t largest);    // How many codes the gaps take.
//   uint32_t Largest();
template <class Sums>
constexpr PositionPlan ChoosePositions(IndexMode mode, size_t kept, uint64_t sum, Sums& sums) {
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
