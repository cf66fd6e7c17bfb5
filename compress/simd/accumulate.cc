// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/accumulate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/accumulate.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint32_t LargestMagnitudeBits(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                              size_t count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  const auto bits_at = [&](size_t i) {
    const auto x = hn::LoadU(df, a + i);
    return hn::BitCast(du, hn::Abs(b == nullptr ? x : hn::Add(x, hn::LoadU(df, b + i))));
  };
  // The loop uses two chains, because a maximum has a latency of several cycles.
  auto even = hn::Zero(du), odd = hn::Zero(du);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::Max(even, bits_at(i));
    odd = hn::Max(odd, bits_at(i + lanes));
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(du, hn::Max(even, odd)));
  for (; i < count; ++i) {
    const float x = b == nullptr ? a[i] : a[i] + b[i];
    uint32_t bits;
    hwy::CopyBytes<sizeof(bits)>(&x, &bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void AddScaled(float scale, const float* HWY_RESTRICT x, float* HWY_RESTRICT sum, size_t count) {
  const hn::ScalableTag<float> df;
  const auto by = hn::Set(df, scale);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), hn::Mul(by, hn::LoadU(df, x + i))), df, sum + i);
  }
  for (; i < count; ++i) sum[i] += scale * x[i];
}

template <bool kScales>
void AddFrom(float scale, const std::byte* HWY_RESTRICT x, float* HWY_RESTRICT sum, size_t count) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(x);
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR has no vectors of bytes.
  const hn::ScalableTag<float> df;
  const hn::Repartition<uint8_t, decltype(df)> du8;
  const auto by = hn::Set(df, scale);
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    auto addend = hn::BitCast(df, hn::LoadU(du8, bytes + i * sizeof(float)));
    if constexpr (kScales) addend = hn::Mul(by, addend);
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), addend), df, sum + i);
  }
#endif
  for (; i < count; ++i) {
    float addend;
    hwy::CopyBytes<sizeof(addend)>(bytes + i * sizeof(float), &addend);
    if constexpr (kScales) addend *= scale;
    sum[i] += addend;
  }
}

void AddScaledBytes(float scale, const std::byte* HWY_RESTRICT x, float* HWY_RESTRICT sum,
                    size_t count) {
  AddFrom<true>(scale, x, sum, count);
}

void AddBytes(const std::byte* HWY_RESTRICT x, float* HWY_RESTRICT sum, size_t count) {
  AddFrom<false>(1, x, sum, count);
}

void DivideBy(float divisor, float* HWY_RESTRICT x, size_t count) {
  const hn::ScalableTag<float> df;
  const auto by = hn::Set(df, divisor);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    hn::StoreU(hn::Div(hn::LoadU(df, x + i), by), df, x + i);
  }
  for (; i < count; ++i) x[i] /= divisor;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(LargestMagnitudeBits);
uint32_t LargestMagnitudeBits(const float* a, const float* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestMagnitudeBits)(a, b, count);
}

HWY_EXPORT(AddScaled);
void AddScaled(float scale, const float* x, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(scale, x, sum, count);
}

HWY_EXPORT(AddScaledBytes);
void AddScaledBytes(float scale, const std::byte* x, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddScaledBytes)(scale, x, sum, count);
}

HWY_EXPORT(AddBytes);
void AddBytes(const std::byte* x, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddBytes)(x, sum, count);
}

HWY_EXPORT(DivideBy);
void DivideBy(float divisor, float* x, size_t count) {
  HWY_DYNAMIC_DISPATCH(DivideBy)(divisor, x, count);
}

}  // namespace sluice::compress
#endif
