// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/stochastic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/stochastic.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/bits-inl.h"
#include "compress/simd/random-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kSign = 0x80000000;
constexpr size_t kPlane = kStochasticBlock / 8;

using F = hn::CappedTag<float, 16>;
using U = hn::RebindToUnsigned<F>;
using I = hn::RebindToSigned<F>;

// Combines levels with the sign bits of `signs`. A level of 0 gets no sign.
HWY_INLINE hn::Vec<U> WithSign(hn::Vec<U> level, hn::Vec<U> signs) {
  const U du;
  const auto code = hn::Or(level, hn::And(signs, hn::Set(du, kSign)));
  return hn::IfThenZeroElse(hn::Eq(level, hn::Zero(du)), code);
}

void RoundToPowersOfTwo(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                        uint64_t key, uint32_t index, uint32_t* HWY_RESTRICT codes) {
  const F df;
  const U du;
  const IndexedRandom random(key);
  for (size_t i = 0; i < kStochasticBlock; i += hn::Lanes(df)) {
    const auto acc = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
    const auto bits = hn::BitCast(du, acc);
    // The mantissa carries into the exponent with the probability that preserves the mean. A
    // subnormal number becomes 0 or 2^-126.
    const auto draw = hn::ShiftRight<9>(random.At(du, index + static_cast<uint32_t>(i)));
    const auto sum = hn::Add(hn::AndNot(hn::Set(du, kSign), bits), draw);
    const auto level = hn::Min(hn::ShiftRight<23>(sum), hn::Set(du, 254u));
    const auto code = WithSign(level, bits);
    const auto decoded = hn::Or(hn::ShiftLeft<23>(level), hn::And(code, hn::Set(du, kSign)));
    hn::StoreU(code, du, codes + i);
    hn::StoreU(hn::Sub(acc, hn::BitCast(df, decoded)), df, residual + i);
  }
}

// Returns code * step. The product is exact, because levels have at most 8 bits and steps have 8 or
// 16.
HWY_INLINE hn::Vec<F> Scaled(hn::Vec<U> code, hn::Vec<F> step) {
  const F df;
  const U du;
  const auto level = hn::AndNot(hn::Set(du, kSign), code);
  const auto size = hn::Mul(hn::ConvertTo(df, hn::BitCast(I(), level)), step);
  return hn::BitCast(df, hn::Or(hn::BitCast(du, size), hn::And(code, hn::Set(du, kSign))));
}

void RoundToSteps(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual, float step,
                  float inverse, uint32_t most, uint64_t key, uint32_t index,
                  uint32_t* HWY_RESTRICT codes) {
  const F df;
  const U du;
  const IndexedRandom random(key);
  const auto largest = hn::Set(df, static_cast<float>(most));
  for (size_t i = 0; i < kStochasticBlock; i += hn::Lanes(df)) {
    const auto acc = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
    // The value is clamped to stay below most + 1 for any step.
    const auto exact = hn::Min(hn::Mul(hn::Abs(acc), hn::Set(df, inverse)), largest);
    const auto below = hn::ConvertTo(I(), exact);
    const auto whole = hn::ConvertTo(df, below);
    const auto draw = hn::ShiftRight<8>(random.At(du, index + static_cast<uint32_t>(i)));
    const auto uniform =
        hn::Mul(hn::ConvertTo(df, hn::BitCast(I(), draw)), hn::Set(df, 0x1.0p-24f));
    const auto up = hn::Lt(uniform, hn::Sub(exact, whole));
    const auto rounded = hn::Add(whole, hn::IfThenElseZero(up, hn::Set(df, 1.0f)));
    const auto level = hn::BitCast(du, hn::ConvertTo(I(), rounded));
    const auto code = WithSign(level, hn::BitCast(du, acc));
    hn::StoreU(code, du, codes + i);
    hn::StoreU(hn::Sub(acc, Scaled(code, hn::Set(df, step))), df, residual + i);
  }
}

double SumOfSquares(const float* HWY_RESTRICT gradient, const float* HWY_RESTRICT residual,
                    size_t count) {
  constexpr size_t kLanes = 16;
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  constexpr size_t kVectors = kLanes / hn::MaxLanes(dd);
  double lanes[kLanes] = {};
  hn::Vec<decltype(dd)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(dd);
  const size_t whole = count - count % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = i + v * hn::Lanes(df);
      const auto acc = hn::Add(hn::LoadU(df, gradient + at), hn::LoadU(df, residual + at));
      const auto wide = hn::PromoteTo(dd, acc);
      sums[v] = hn::Add(sums[v], hn::Mul(wide, wide));
    }
  }
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], dd, lanes + v * hn::Lanes(dd));
  for (size_t i = whole; i < count; ++i) {
    const double acc = gradient[i] + residual[i];
    lanes[i % kLanes] += acc * acc;
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

LevelRange RangeOfLevels(const uint32_t* HWY_RESTRICT codes) {
  const U du;
  // One is subtracted, so that 0 wraps around and becomes the largest number.
  auto smallest = hn::Set(du, ~0u), largest = hn::Zero(du);
  for (size_t i = 0; i < kStochasticBlock; i += hn::Lanes(du)) {
    const auto level = hn::AndNot(hn::Set(du, kSign), hn::LoadU(du, codes + i));
    largest = hn::Max(largest, level);
    smallest = hn::Min(smallest, hn::Sub(level, hn::Set(du, 1u)));
  }
  return {hn::GetLane(hn::MinOfLanes(du, smallest)) + 1, hn::GetLane(hn::MaxOfLanes(du, largest))};
}

void PackPlanes(const uint32_t* HWY_RESTRICT codes, uint32_t base, int bits,
                uint8_t* HWY_RESTRICT planes) {
  const U du;
  const auto sign = hn::Set(du, kSign), zero = hn::Zero(du);
  for (size_t word = 0; word < kStochasticBlock / 64; ++word) {
    uint64_t words[9] = {};
    for (size_t i = 0; i < 64; i += hn::Lanes(du)) {
      const auto code = hn::LoadU(du, codes + 64 * word + i);
      const auto level = hn::AndNot(sign, code);
      const auto offset =
          hn::IfThenZeroElse(hn::Eq(level, zero), hn::Sub(level, hn::Set(du, base)));
      words[0] |= LaneBits(du, hn::TestBit(code, sign)) << i;
      for (int bit = 0; bit < bits; ++bit) {
        words[1 + bit] |= LaneBits(du, hn::TestBit(offset, hn::Set(du, 1u << bit))) << i;
      }
    }
    for (int plane = 0; plane <= bits; ++plane) {
      hwy::CopyBytes<8>(&words[plane], planes + static_cast<size_t>(plane) * kPlane + 8 * word);
    }
  }
}

void UnpackPlanes(const uint8_t* HWY_RESTRICT planes, uint32_t base, int bits,
                  uint32_t* HWY_RESTRICT codes) {
  const U du;
  const F df;
  for (size_t word = 0; word < kStochasticBlock / 64; ++word) {
    uint64_t words[9];
    for (int plane = 0; plane <= bits; ++plane) {
      hwy::CopyBytes<8>(planes + static_cast<size_t>(plane) * kPlane + 8 * word, &words[plane]);
    }
    for (size_t i = 0; i < 64; i += hn::Lanes(du)) {
      auto offset = hn::Zero(du);
      for (int bit = 0; bit < bits; ++bit) {
        const auto set = hn::RebindMask(du, MaskOfBits(df, words[1 + bit] >> i));
        offset = hn::Or(offset, hn::IfThenElseZero(set, hn::Set(du, 1u << bit)));
      }
      const auto negative = hn::RebindMask(du, MaskOfBits(df, words[0] >> i));
      const auto level =
          hn::IfThenZeroElse(hn::Eq(offset, hn::Zero(du)), hn::Add(offset, hn::Set(du, base)));
      const auto code = hn::Or(level, hn::IfThenElseZero(negative, hn::Set(du, kSign)));
      hn::StoreU(code, du, codes + 64 * word + i);
    }
  }
}

void AddSteps(const uint32_t* HWY_RESTRICT codes, float step, float* HWY_RESTRICT sum) {
  const F df;
  for (size_t i = 0; i < kStochasticBlock; i += hn::Lanes(df)) {
    const auto value = Scaled(hn::LoadU(U(), codes + i), hn::Set(df, step));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), value), df, sum + i);
  }
}

void AddPowersOfTwo(const uint32_t* HWY_RESTRICT codes, float* HWY_RESTRICT sum) {
  const F df;
  const U du;
  for (size_t i = 0; i < kStochasticBlock; i += hn::Lanes(df)) {
    const auto code = hn::LoadU(du, codes + i);
    // The shift removes the sign.
    const auto value =
        hn::BitCast(df, hn::Or(hn::ShiftLeft<23>(code), hn::And(code, hn::Set(du, kSign))));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), value), df, sum + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(RoundToPowersOfTwo);
void RoundToPowersOfTwo(const float* gradient, float* residual, uint64_t key, uint32_t index,
                        uint32_t* codes) {
  HWY_DYNAMIC_DISPATCH(RoundToPowersOfTwo)(gradient, residual, key, index, codes);
}

HWY_EXPORT(RoundToSteps);
void RoundToSteps(const float* gradient, float* residual, float step, float inverse, uint32_t most,
                  uint64_t key, uint32_t index, uint32_t* codes) {
  HWY_DYNAMIC_DISPATCH(RoundToSteps)(gradient, residual, step, inverse, most, key, index, codes);
}

HWY_EXPORT(SumOfSquares);
double SumOfSquares(const float* gradient, const float* residual, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(gradient, residual, count);
}

HWY_EXPORT(RangeOfLevels);
LevelRange RangeOfLevels(const uint32_t* codes) {
  return HWY_DYNAMIC_DISPATCH(RangeOfLevels)(codes);
}

HWY_EXPORT(PackPlanes);
void PackPlanes(const uint32_t* codes, uint32_t base, int bits, uint8_t* planes) {
  HWY_DYNAMIC_DISPATCH(PackPlanes)(codes, base, bits, planes);
}

HWY_EXPORT(UnpackPlanes);
void UnpackPlanes(const uint8_t* planes, uint32_t base, int bits, uint32_t* codes) {
  HWY_DYNAMIC_DISPATCH(UnpackPlanes)(planes, base, bits, codes);
}

HWY_EXPORT(AddSteps);
void AddSteps(const uint32_t* codes, float step, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddSteps)(codes, step, sum);
}

HWY_EXPORT(AddPowersOfTwo);
void AddPowersOfTwo(const uint32_t* codes, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddPowersOfTwo)(codes, sum);
}

}  // namespace sluice::compress
#endif
