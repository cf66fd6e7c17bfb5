// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/ternary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/ternary.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/bits-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Prefetch distance. Explicit prefetching is necessary because the later passes over a block defeat
// the processor's own prefetching.
constexpr size_t kAhead = 4 * kTernaryBlock;

// Computes acc in place and returns the block's largest magnitude.
HWY_INLINE float AccumulateBlock(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  auto largest = hn::Zero(du);
  for (size_t i = 0; i < kTernaryBlock; i += hn::Lanes(df)) {
    hwy::Prefetch(gradient + i + kAhead);
    hwy::Prefetch(residual + i + kAhead);
    const auto acc = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
    hn::StoreU(acc, df, residual + i);
    largest = hn::Max(largest, hn::BitCast(du, hn::Abs(acc)));
  }
  return hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(du, largest)));
}

// Returns the sum of the magnitudes that reach `tau`. The sum is in fp64, which cannot overflow,
// and uses 8 lanes on every instruction set.
HWY_INLINE double SumInLanes(const float* HWY_RESTRICT acc, float tau) {
  constexpr size_t kLanes = 8;
  const hn::CappedTag<double, kLanes> dd;
  const hn::Rebind<float, decltype(dd)> df;
  constexpr size_t kVectors = kLanes / hn::MaxLanes(dd);
  const auto least = hn::Set(df, tau);
  hn::Vec<decltype(dd)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(dd);
  for (size_t i = 0; i < kTernaryBlock; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::Abs(hn::LoadU(df, acc + i + v * hn::Lanes(df)));
      sums[v] = hn::Add(sums[v], hn::PromoteTo(dd, hn::IfThenElseZero(hn::Ge(x, least), x)));
    }
  }
  double lanes[kLanes];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], dd, lanes + v * hn::Lanes(dd));
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

HWY_INLINE uint32_t BitsOf(float x) {
  uint32_t bits;
  hwy::CopyBytes<sizeof(bits)>(&x, &bits);
  return bits;
}
HWY_INLINE float FloatOf(uint32_t bits) {
  float x;
  hwy::CopyBytes<sizeof(x)>(&bits, &x);
  return x;
}

// If the share is at least this large, an fp64 has enough bits for both the smallest kept value and
// the sum of 256 of the largest values. Sums are then exact, and their order does not matter.
constexpr float kOrderFreeShare = 0x1p-20f;

// `values` must have space for one vector after the last value.
HWY_INLINE double SumOfMagnitudes(float* HWY_RESTRICT values, size_t kept) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  hn::StoreU(hn::Zero(df), df, values + kept);
  auto sum = hn::Zero(dd);
  for (size_t i = 0; i < kept; i += hn::Lanes(dd)) {
    sum = hn::Add(sum, hn::PromoteTo(dd, hn::Abs(hn::LoadU(df, values + i))));
  }
  double lanes[8], total = 0;
  hn::StoreU(sum, dd, lanes);
  for (size_t lane = 0; lane < hn::Lanes(dd); ++lane) total += lanes[lane];
  return total;
}

HWY_INLINE void SubtractKept(float tau, uint32_t code, float* HWY_RESTRICT residual) {
  const hn::CappedTag<float, 16> df;
  const auto least = hn::Set(df, tau);
  const auto scale = hn::Set(df, FloatOf(code << kTernaryScaleShift));
  for (size_t i = 0; i < kTernaryBlock; i += hn::Lanes(df)) {
    const auto acc = hn::LoadU(df, residual + i);
    const auto kept = hn::Ge(hn::Abs(acc), least);
    const auto decoded = hn::IfThenElseZero(kept, hn::CopySign(scale, acc));
    hn::StoreU(hn::Sub(acc, decoded), df, residual + i);
  }
}

HWY_INLINE uint32_t ScaleCode(double sum, size_t kept) {
  const uint32_t bits = BitsOf(static_cast<float>(sum / static_cast<double>(kept)));
  // Rounds to nearest even.
  const uint32_t half = (1 << (kTernaryScaleShift - 1)) - 1;
  const uint32_t code = (bits + half + ((bits >> kTernaryScaleShift) & 1)) >> kTernaryScaleShift;
  return HWY_MIN(code, kTernaryScaleMax);
}

// Writes the entry and the value of each element that reaches `tau`. Returns the number of these
// elements.
HWY_INLINE size_t KeepLarge(const float* HWY_RESTRICT acc, float tau, uint32_t first,
                            uint32_t* HWY_RESTRICT entries, float* HWY_RESTRICT values) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto least = hn::Set(df, tau);
  const auto sign = hn::Set(du, kTernaryNegative);
  // Iota starts at 0, because the compiler builds one with a variable start lane by lane.
  const auto iota = hn::Iota(du, 0);
  size_t kept = 0;
  for (size_t i = 0; i < kTernaryBlock; i += hn::Lanes(df)) {
    const auto x = hn::LoadU(df, acc + i);
    const auto large = hn::Ge(hn::Abs(x), least);
    const auto position = hn::Add(iota, hn::Set(du, first + static_cast<uint32_t>(i)));
    const auto entry = hn::Or(position, hn::And(hn::BitCast(du, x), sign));
    // The whole vector is stored, which may reach into the slack.
    hn::StoreU(hn::Compress(entry, hn::RebindMask(du, large)), du, entries + kept);
    hn::StoreU(hn::Compress(x, large), df, values + kept);
    kept += hn::CountTrue(df, large);
  }
  return kept;
}

size_t EncodeTernary(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual, float share,
                     uint32_t first, uint32_t* HWY_RESTRICT entries, uint32_t* HWY_RESTRICT scales,
                     size_t count) {
  // This limit is above 0, so that zeros are never kept.
  constexpr float kLeast = 1.4012984643248171e-45f;
  const uint32_t* const begin = entries;
  float values[kTernaryBlock + kTernarySlack];
  for (size_t block = 0; block < count; ++block) {
    const float largest = AccumulateBlock(gradient, residual);
    const float tau = HWY_MAX(share * largest, kLeast);
    const size_t kept = KeepLarge(residual, tau, first, entries, values);
    const double sum =
        share < kOrderFreeShare ? SumInLanes(residual, tau) : SumOfMagnitudes(values, kept);
    scales[block] = kept > 0 ? ScaleCode(sum, kept) : 0;
    if (scales[block] > 0) {
      SubtractKept(tau, scales[block], residual);
      entries += kept;
    }
    gradient += kTernaryBlock;
    residual += kTernaryBlock;
    first += kTernaryBlock;
  }
  return static_cast<size_t>(entries - begin);
}

void SplitEntries(const uint32_t* HWY_RESTRICT entries, size_t count, uint32_t* HWY_RESTRICT gaps,
                  uint8_t* HWY_RESTRICT negative) {
  if (count == 0) return;
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto sign = hn::Set(du, kTernaryNegative), one = hn::Set(du, 1);
  gaps[0] = entries[0] & ~kTernaryNegative;
  size_t i = 1;
  for (; i + hn::Lanes(du) <= count; i += hn::Lanes(du)) {
    const auto here = hn::AndNot(sign, hn::LoadU(du, entries + i));
    const auto before = hn::AndNot(sign, hn::LoadU(du, entries + i - 1));
    hn::StoreU(hn::Sub(hn::Sub(here, before), one), du, gaps + i);
  }
  for (; i < count; ++i) {
    gaps[i] = (entries[i] & ~kTernaryNegative) - (entries[i - 1] & ~kTernaryNegative) - 1;
  }
  size_t at = 0;
  for (; at + 64 <= count; at += 64) {
    uint64_t word = 0;
    for (size_t lane = 0; lane < 64; lane += hn::Lanes(du)) {
      const auto entry = hn::LoadU(du, entries + at + lane);
      word |= LaneBits(du, hn::TestBit(entry, sign)) << lane;
    }
    hwy::CopyBytes<8>(&word, negative + at / 8);
  }
  for (size_t byte = at / 8; 8 * byte < count; ++byte) negative[byte] = 0;
  for (; at < count; ++at) {
    negative[at / 8] = static_cast<uint8_t>(negative[at / 8] | (entries[at] >> 31 << (at % 8)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(EncodeTernary);
size_t EncodeTernary(const float* gradient, float* residual, float share, uint32_t first,
                     uint32_t* entries, uint32_t* scales, size_t count) {
  return HWY_DYNAMIC_DISPATCH(EncodeTernary)(gradient, residual, share, first, entries, scales,
                                             count);
}

HWY_EXPORT(SplitEntries);
void SplitEntries(const uint32_t* entries, size_t count, uint32_t* gaps, uint8_t* negative) {
  HWY_DYNAMIC_DISPATCH(SplitEntries)(entries, count, gaps, negative);
}

}  // namespace sluice::compress
#endif
