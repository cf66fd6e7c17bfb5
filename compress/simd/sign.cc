// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/sign.h"

#include "base/float_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/sign.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/bits-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kWords = kSignBlock / 64;
// Prefetch distance. Explicit prefetching is necessary because the second pass over a block defeats
// the processor's own prefetching.
constexpr size_t kAhead = kSignBlock;

// A sum in fp64, which cannot overflow. Every instruction set uses 16 lanes: element i is added to
// lane i mod 16, and then the lanes are added in order.
class LaneSum {
 public:
  HWY_INLINE LaneSum() {
    for (auto& sum : sums_) sum = hn::Zero(DD());
  }
  // Adds magnitude(acc[i]) for `count` elements; `count` must be a multiple of 16.
  template <class Magnitude>
  HWY_INLINE void Add(const float* HWY_RESTRICT acc, size_t count, Magnitude magnitude) {
    const hn::Rebind<float, DD> df;
    for (size_t i = 0; i < count; i += kLanes) {
      for (size_t v = 0; v < kVectors; ++v) {
        const auto x = magnitude(hn::LoadU(df, acc + i + v * hn::Lanes(df)));
        sums_[v] = hn::Add(sums_[v], hn::PromoteTo(DD(), x));
      }
    }
  }
  HWY_INLINE double Total() const {
    double lanes[kLanes];
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums_[v], DD(), lanes + v * hn::Lanes(DD()));
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
  }

 private:
  using DD = hn::CappedTag<double, 8>;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kVectors = kLanes / hn::MaxLanes(DD());
  hn::Vec<DD> sums_[kVectors];
};

template <class Magnitude>
HWY_INLINE double SumOf(const float* HWY_RESTRICT acc, Magnitude magnitude) {
  LaneSum sum;
  sum.Add(acc, kSignBlock, magnitude);
  return sum.Total();
}

// Computes acc in place and records signs and zeros. With kSum, returns the sum of magnitudes.
template <bool kSum>
HWY_INLINE double AccumulateSigns(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                                  SignBlock* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  const auto zero = hn::Zero(df);
  LaneSum sum;
  for (size_t word = 0; word < kWords; ++word) {
    uint64_t negative = 0, zeros = 0;
    for (size_t i = 0; i < 64; i += hn::Lanes(df)) {
      const size_t at = 64 * word + i;
      hwy::Prefetch(gradient + at + kAhead);
      hwy::Prefetch(residual + at + kAhead);
      const auto acc = hn::Add(hn::LoadU(df, gradient + at), hn::LoadU(df, residual + at));
      hn::StoreU(acc, df, residual + at);
      negative |= LaneBits(df, hn::Lt(acc, zero)) << i;
      zeros |= LaneBits(df, hn::Eq(acc, zero)) << i;
    }
    out->negative[word] = negative;
    out->zero[word] = zeros;
    if constexpr (kSum) {
      sum.Add(residual + 64 * word, 64, [](auto x) HWY_ATTR { return hn::Abs(x); });
    }
  }
  return kSum ? sum.Total() : 0;
}

HWY_INLINE size_t CountBits(const uint64_t* HWY_RESTRICT words) {
  size_t count = 0;
  for (size_t word = 0; word < kWords; ++word) count += hwy::PopCount(words[word]);
  return count;
}

// Gives the zeros of a block a sign if at most half of its `elements` are zero.
HWY_INLINE bool SignTheZeros(SignZeros rule, size_t elements, SignBlock* HWY_RESTRICT block) {
  constexpr uint64_t kOddPositions = 0xAAAAAAAAAAAAAAAA;
  if (rule == SignZeros::kStay) return false;
  const size_t zeros = CountBits(block->zero) - (kSignBlock - elements);
  if (zeros == 0 || 2 * zeros > elements) return false;
  const uint64_t negative = rule == SignZeros::kAlternate ? kOddPositions : 0;
  for (size_t word = 0; word < kWords; ++word) {
    const size_t real = 64 * word < elements ? elements - 64 * word : 0;
    const uint64_t padding = real < 64 ? ~uint64_t{0} << real : 0;
    block->negative[word] |= block->zero[word] & ~padding & negative;
    block->zero[word] &= padding;
  }
  return true;
}

HWY_INLINE uint16_t MeanOf(double sum, size_t count) {
  return count == 0 ? uint16_t{0} : ToBfloat(static_cast<float>(sum / static_cast<double>(count)));
}

template <SignScale kScale>
HWY_INLINE void FindMeans(const float* HWY_RESTRICT acc, double sum, SignBlock* HWY_RESTRICT out) {
  const hn::Rebind<float, hn::CappedTag<double, 8>> df;
  const size_t below = CountBits(out->negative);
  const size_t above = kSignBlock - below - CountBits(out->zero);
  if constexpr (kScale == SignScale::kOne) {
    out->above = out->below = above + below > 0 ? 0x3F80 : 0;
  } else if constexpr (kScale == SignScale::kMean) {
    out->above = out->below = MeanOf(sum, above + below);
  } else {
    const double sum_above = SumOf(acc, [&](auto x) HWY_ATTR { return hn::Max(x, hn::Zero(df)); });
    const double sum_below =
        SumOf(acc, [&](auto x) HWY_ATTR { return hn::Max(hn::Neg(x), hn::Zero(df)); });
    out->above = MeanOf(sum_above, above);
    out->below = MeanOf(sum_below, below);
  }
  // Values that would decode to 0 are recorded as zeros.
  for (size_t word = 0; word < kWords; ++word) {
    if (out->below == 0) {
      out->zero[word] |= out->negative[word];
      out->negative[word] = 0;
    }
    if (out->above == 0) out->zero[word] |= ~out->negative[word];
  }
}

// `kZeros` are the zeros of the block: kStay if they decode to 0.
template <SignZeros kZeros>
HWY_INLINE void SubtractSigns(const SignBlock& block, float* HWY_RESTRICT residual) {
  const hn::CappedTag<float, 16> df;
  const auto zero = hn::Zero(df);
  const auto above = hn::Set(df, FromBfloat(block.above));
  const auto below = hn::Set(df, -FromBfloat(block.below));
  for (size_t i = 0; i < kSignBlock; i += hn::Lanes(df)) {
    const auto acc = hn::LoadU(df, residual + i);
    auto negative = hn::Lt(acc, zero);
    if constexpr (kZeros == SignZeros::kAlternate) {
      negative = MaskOfBits(df, block.negative[i / 64] >> (i % 64));
    }
    auto decoded = hn::IfThenElse(negative, below, above);
    if constexpr (kZeros == SignZeros::kStay) {
      decoded = hn::IfThenZeroElse(hn::Eq(acc, zero), decoded);
    }
    hn::StoreU(hn::Sub(acc, decoded), df, residual + i);
  }
}

template <SignScale kScale>
HWY_INLINE void EncodeBlocks(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                             SignZeros zeros, SignBlock* HWY_RESTRICT blocks, size_t count,
                             size_t elements) {
  for (size_t i = 0; i < count; ++i) {
    const double sum = AccumulateSigns<kScale == SignScale::kMean>(gradient, residual, &blocks[i]);
    const bool no_zeros = SignTheZeros(zeros, elements, &blocks[i]);
    FindMeans<kScale>(residual, sum, &blocks[i]);
    if (!no_zeros) {
      SubtractSigns<SignZeros::kStay>(blocks[i], residual);
    } else if (zeros == SignZeros::kPositive) {
      SubtractSigns<SignZeros::kPositive>(blocks[i], residual);
    } else {
      SubtractSigns<SignZeros::kAlternate>(blocks[i], residual);
    }
    gradient += kSignBlock;
    residual += kSignBlock;
  }
}

void EncodeSigns(const float* gradient, float* residual, SignScale scale, SignZeros zeros,
                 SignBlock* blocks, size_t count, size_t elements) {
  switch (scale) {
    case SignScale::kMean:
      return EncodeBlocks<SignScale::kMean>(gradient, residual, zeros, blocks, count, elements);
    case SignScale::kTwoMeans:
      return EncodeBlocks<SignScale::kTwoMeans>(gradient, residual, zeros, blocks, count, elements);
    case SignScale::kOne:
      return EncodeBlocks<SignScale::kOne>(gradient, residual, zeros, blocks, count, elements);
  }
}

void AddSigns(const uint8_t* HWY_RESTRICT negative, const uint8_t* HWY_RESTRICT zero, float above,
              float below, float* HWY_RESTRICT sum) {
  const hn::CappedTag<float, 16> df;
  const auto positive = hn::Set(df, above), other = hn::Set(df, -below);
  for (size_t word = 0; word < kWords; ++word) {
    uint64_t negatives, zeros = 0;
    hwy::CopyBytes<8>(negative + 8 * word, &negatives);
    if (zero != nullptr) hwy::CopyBytes<8>(zero + 8 * word, &zeros);
    for (size_t i = 0; i < 64; i += hn::Lanes(df)) {
      const auto x = hn::IfThenElse(MaskOfBits(df, negatives >> i), other, positive);
      const auto value = hn::IfThenZeroElse(MaskOfBits(df, zeros >> i), x);
      float* const at = sum + 64 * word + i;
      hn::StoreU(hn::Add(hn::LoadU(df, at), value), df, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(EncodeSigns);
void EncodeSigns(const float* gradient, float* residual, SignScale scale, SignZeros zeros,
                 SignBlock* blocks, size_t count, size_t elements) {
  HWY_DYNAMIC_DISPATCH(EncodeSigns)(gradient, residual, scale, zeros, blocks, count, elements);
}

HWY_EXPORT(AddSigns);
void AddSigns(const uint8_t* negative, const uint8_t* zero, float above, float below, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddSigns)(negative, zero, above, below, sum);
}

}  // namespace sluice::compress
#endif
