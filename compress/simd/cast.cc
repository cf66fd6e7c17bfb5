// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/cast.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/cast.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/random-inl.h"
#include "compress/simd/vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr uint32_t kSign = 0x80000000;

// A shorter format, defined by its parameters: kMantissa bits of mantissa, exponents with the bias
// kBias, and codes up to kLargest. It covers fp16, e4m3 and e5m2. All arithmetic is on the bits of
// fp32.
template <int kMantissa, int kBias, uint32_t kLargest>
struct Short {
  static constexpr int kDrop = 23 - kMantissa;
  static constexpr uint32_t kRebase = static_cast<uint32_t>(127 - kBias) << 23;
  // The smallest normal number and the unit of subnormal numbers, as the bits of floats.
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  static constexpr uint32_t kUnitBits = static_cast<uint32_t>(128 - kBias - kMantissa) << 23;
  static constexpr uint32_t kInverseUnitBits = static_cast<uint32_t>(254 << 23) - kUnitBits;

  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(
      DF df, hn::Vec<DF> x, bool stochastic, hn::Vec<hn::RebindToUnsigned<DF>> draw) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const auto magnitude = hn::BitCast(du, hn::Abs(x));
    const auto units =
        hn::Mul(hn::BitCast(df, magnitude), hn::BitCast(df, hn::Set(du, kInverseUnitBits)));
    // The limit prevents an overflow when large numbers are converted. The selection below discards
    // these results.
    const auto few = hn::Min(units, hn::Set(df, static_cast<float>(2 << kMantissa)));
    hn::Vec<decltype(du)> normal, subnormal;
    if (stochastic) {
      const auto low = hn::And(draw, hn::Set(du, (1u << kDrop) - 1));
      normal = hn::ShiftRight<kDrop>(hn::Sub(hn::Add(magnitude, low), hn::Set(du, kRebase)));
      const auto below = hn::Floor(few);
      const auto uniform = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<8>(draw))),
                                   hn::Set(df, 0x1.0p-24f));
      const auto up = hn::Lt(uniform, hn::Sub(few, below));
      subnormal = hn::BitCast(
          du, hn::ConvertTo(di, hn::Add(below, hn::IfThenElseZero(up, hn::Set(df, 1.0f)))));
    } else {
      const auto odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(du, 1));
      const auto half = hn::Set(du, (1u << (kDrop - 1)) - 1);
      normal = hn::ShiftRight<kDrop>(
          hn::Sub(hn::Add(magnitude, hn::Add(half, odd)), hn::Set(du, kRebase)));
      subnormal = hn::BitCast(du, hn::ConvertTo(di, hn::Round(few)));
    }
    const auto small = hn::Lt(magnitude, hn::Set(du, kSmallestNormal));
    return hn::Min(hn::IfThenElse(small, subnormal, normal), hn::Set(du, kLargest));
  }

  // Decodes a code without its sign.
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Decode(DF df, hn::Vec<hn::RebindToUnsigned<DF>> code) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const auto normal = hn::Add(hn::ShiftLeft<kDrop>(code), hn::Set(du, kRebase));
    // This avoids subnormal floats, because operations on them are slow.
    const auto subnormal =
        hn::Mul(hn::ConvertTo(df, hn::BitCast(di, code)), hn::BitCast(df, hn::Set(du, kUnitBits)));
    const auto small = hn::Lt(code, hn::Set(du, 1u << kMantissa));
    return hn::BitCast(df, hn::IfThenElse(small, hn::BitCast(du, subnormal), normal));
  }
};

using Fp16 = Short<10, 15, 0x7BFF>;
using E4m3 = Short<3, 7, 0x7E>;
using E5m2 = Short<2, 15, 0x7B>;

// bf16: the upper half of an fp32.
struct Bf16 {
  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(
      DF, hn::Vec<DF> x, bool stochastic, hn::Vec<hn::RebindToUnsigned<DF>> draw) {
    const hn::RebindToUnsigned<DF> du;
    const auto magnitude = hn::BitCast(du, hn::Abs(x));
    const auto odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(du, 1));
    const auto up =
        stochastic ? hn::And(draw, hn::Set(du, 0xFFFFu)) : hn::Add(hn::Set(du, 0x7FFFu), odd);
    return hn::Min(hn::ShiftRight<16>(hn::Add(magnitude, up)), hn::Set(du, 0x7F7Fu));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Decode(DF df, hn::Vec<hn::RebindToUnsigned<DF>> code) {
    return hn::BitCast(df, hn::ShiftLeft<16>(code));
  }
};

template <class DF>
HWY_INLINE hn::Vec<DF> WithSignOf(DF df, hn::Vec<DF> x, hn::Vec<hn::RebindToUnsigned<DF>> sign) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::Or(hn::BitCast(du, x), sign));
}

template <class Format, class DF>
HWY_INLINE void HalfAt(DF df, const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                       bool stochastic, const IndexedRandom& random, uint32_t index,
                       uint16_t* HWY_RESTRICT codes) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> d16;
  const auto acc = hn::Add(hn::LoadU(df, gradient), hn::LoadU(df, residual));
  const auto draw = stochastic ? random.At(du, index) : hn::Zero(du);
  const auto code = Format::Encode(df, acc, stochastic, draw);
  const auto sign = hn::And(hn::BitCast(du, acc), hn::Set(du, kSign));
  hn::StoreU(hn::Sub(acc, WithSignOf(df, Format::Decode(df, code), sign)), df, residual);
  const auto signed_code = hn::Or(code, hn::ShiftRight<16>(sign));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, signed_code)), d16, codes);
}

// Encodes to nearest, without a residual. Uses the processor's conversion to fp16, if there is one,
// because it gives the same result for all numbers in the range of fp16.
template <class Format, class DF>
HWY_INLINE void HalfAlone(DF df, const float* HWY_RESTRICT gradient, uint16_t* HWY_RESTRICT codes) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> d16;
  const auto value = hn::LoadU(df, gradient);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (std::is_same_v<Format, Fp16> && hn::MaxLanes(DF()) > 1) {
    constexpr float kLargest = 65504;
    const hn::Rebind<hwy::float16_t, DF> dh;
    const auto inside = hn::Min(hn::Max(value, hn::Set(df, -kLargest)), hn::Set(df, kLargest));
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(dh, inside)), d16, codes);
    return;
  }
#endif
  const auto code = Format::Encode(df, value, false, hn::Zero(du));
  const auto sign = hn::And(hn::BitCast(du, value), hn::Set(du, kSign));
  const auto signed_code = hn::Or(code, hn::ShiftRight<16>(sign));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, signed_code)), d16, codes);
}

template <class Format>
HWY_INLINE void ToHalf(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                       const CastRounding& rounding, uint16_t* HWY_RESTRICT codes, size_t count) {
  if (residual == nullptr) {
    ForEachVector(
        count, [&](auto df, size_t i) HWY_ATTR { HalfAlone<Format>(df, gradient + i, codes + i); });
    return;
  }
  const IndexedRandom random(rounding.key);
  // The condition is constant in each loop.
  if (rounding.stochastic) {
    ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
      HalfAt<Format>(df, gradient + i, residual + i, true, random,
                     rounding.index + static_cast<uint32_t>(i), codes + i);
    });
  } else {
    ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
      HalfAt<Format>(df, gradient + i, residual + i, false, random, 0, codes + i);
    });
  }
}

void ToFp16(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
            const CastRounding& rounding, uint16_t* HWY_RESTRICT codes, size_t count) {
  ToHalf<Fp16>(gradient, residual, rounding, codes, count);
}

void ToBf16(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
            const CastRounding& rounding, uint16_t* HWY_RESTRICT codes, size_t count) {
  ToHalf<Bf16>(gradient, residual, rounding, codes, count);
}

// Loads codes of two bytes and widens each to a word.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> LoadCodes(DF /*df*/,
                                                       const uint16_t* HWY_RESTRICT codes) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> du;
  return hn::PromoteTo(du, hn::LoadU(d16, codes));
}

template <class Format>
HWY_INLINE void AddHalf(const uint16_t* HWY_RESTRICT codes, float* HWY_RESTRICT sum, size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToUnsigned<DF> du;
    const auto code = LoadCodes(df, codes + i);
    const auto sign = hn::ShiftLeft<16>(hn::And(code, hn::Set(du, 0x8000u)));
    const auto value = Format::Decode(df, hn::And(code, hn::Set(du, 0x7FFFu)));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), WithSignOf(df, value, sign)), df, sum + i);
  });
}

void AddFp16(const uint16_t* HWY_RESTRICT codes, float* HWY_RESTRICT sum, size_t count) {
  AddHalf<Fp16>(codes, sum, count);
}

void AddBf16(const uint16_t* HWY_RESTRICT codes, float* HWY_RESTRICT sum, size_t count) {
  AddHalf<Bf16>(codes, sum, count);
}

// Formats decode all codes as finite numbers. Codes above `kLargest` are not finite and need a
// correction.
template <class Format, uint32_t kLargest>
HWY_INLINE void WidenHalf(const uint16_t* HWY_RESTRICT codes, float scale,
                          float* HWY_RESTRICT values, size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToUnsigned<DF> du;
    const auto code = LoadCodes(df, codes + i);
    const auto sign = hn::ShiftLeft<16>(hn::And(code, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::And(code, hn::Set(du, 0x7FFFu));
    const auto decoded = hn::BitCast(du, Format::Decode(df, magnitude));
    const auto not_finite = hn::Lt(hn::Set(du, kLargest), magnitude);
    const auto bits = hn::Or(decoded, hn::IfThenElseZero(not_finite, hn::Set(du, 0x7F800000u)));
    const auto value = WithSignOf(df, hn::BitCast(df, bits), sign);
    hn::StoreU(hn::Mul(value, hn::Set(df, scale)), df, values + i);
  });
}

void WidenFp16(const uint16_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT values,
               size_t count) {
  WidenHalf<Fp16, 0x7BFF>(codes, scale, values, count);
}

void WidenBf16(const uint16_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT values,
               size_t count) {
  WidenHalf<Bf16, 0x7F7F>(codes, scale, values, count);
}

uint16_t LargestHalf(const uint16_t* HWY_RESTRICT codes, size_t count) {
  const hn::ScalableTag<uint16_t> d;
  const auto mask = hn::Set(d, 0x7FFF);
  auto most = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    most = hn::Max(most, hn::And(hn::LoadU(d, codes + i), mask));
  }
  uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)];
  hn::StoreU(most, d, lanes);
  uint16_t largest = 0;
  for (size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  }
  for (; i < count; ++i) {
    const auto magnitude = static_cast<uint16_t>(codes[i] & 0x7FFF);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <class Format>
HWY_INLINE void ToByte(float scale, float inverse, const CastRounding& rounding,
                       float* HWY_RESTRICT acc, uint8_t* HWY_RESTRICT codes, size_t count) {
  const IndexedRandom random(rounding.key);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> d8;
    const auto value = hn::LoadU(df, acc + i);
    const auto draw = rounding.stochastic ? random.At(du, rounding.index + static_cast<uint32_t>(i))
                                          : hn::Zero(du);
    const auto scaled = hn::Mul(value, hn::Set(df, inverse));
    const auto code = Format::Encode(df, scaled, rounding.stochastic, draw);
    const auto sign = hn::And(hn::BitCast(du, value), hn::Set(du, kSign));
    const auto decoded =
        hn::Mul(WithSignOf(df, Format::Decode(df, code), sign), hn::Set(df, scale));
    hn::StoreU(hn::Sub(value, decoded), df, acc + i);
    const auto signed_code = hn::Or(code, hn::ShiftRight<24>(sign));
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, signed_code)), d8, codes + i);
  });
}

void ToFp8(const Fp8Format& format, float scale, float inverse, const CastRounding& rounding,
           float* HWY_RESTRICT acc, uint8_t* HWY_RESTRICT codes, size_t count) {
  if (format.mantissa == kFp8E4m3.mantissa) {
    ToByte<E4m3>(scale, inverse, rounding, acc, codes, count);
  } else {
    ToByte<E5m2>(scale, inverse, rounding, acc, codes, count);
  }
}

template <class Format>
HWY_INLINE void AddByte(float scale, const uint8_t* HWY_RESTRICT codes, float* HWY_RESTRICT sum,
                        size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToUnsigned<DF> du;
    const hn::Rebind<uint8_t, DF> d8;
    const auto code = hn::PromoteTo(du, hn::LoadU(d8, codes + i));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80u)));
    const auto value = Format::Decode(df, hn::And(code, hn::Set(du, 0x7Fu)));
    const auto scaled = hn::Mul(WithSignOf(df, value, sign), hn::Set(df, scale));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), scaled), df, sum + i);
  });
}

void AddFp8(const Fp8Format& format, float scale, const uint8_t* HWY_RESTRICT codes,
            float* HWY_RESTRICT sum, size_t count) {
  if (format.mantissa == kFp8E4m3.mantissa) {
    AddByte<E4m3>(scale, codes, sum, count);
  } else {
    AddByte<E5m2>(scale, codes, sum, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(ToFp16);
void ToFp16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count) {
  HWY_DYNAMIC_DISPATCH(ToFp16)(gradient, residual, rounding, codes, count);
}

HWY_EXPORT(ToBf16);
void ToBf16(const float* gradient, float* residual, const CastRounding& rounding, uint16_t* codes,
            size_t count) {
  HWY_DYNAMIC_DISPATCH(ToBf16)(gradient, residual, rounding, codes, count);
}

HWY_EXPORT(AddFp16);
void AddFp16(const uint16_t* codes, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddFp16)(codes, sum, count);
}

HWY_EXPORT(AddBf16);
void AddBf16(const uint16_t* codes, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddBf16)(codes, sum, count);
}

HWY_EXPORT(WidenFp16);
void WidenFp16(const uint16_t* codes, float scale, float* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenFp16)(codes, scale, values, count);
}

HWY_EXPORT(WidenBf16);
void WidenBf16(const uint16_t* codes, float scale, float* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenBf16)(codes, scale, values, count);
}

HWY_EXPORT(LargestHalf);
uint16_t LargestHalf(const uint16_t* codes, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestHalf)(codes, count);
}

HWY_EXPORT(ToFp8);
void ToFp8(const Fp8Format& format, float scale, float inverse, const CastRounding& rounding,
           float* acc, uint8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(ToFp8)(format, scale, inverse, rounding, acc, codes, count);
}

HWY_EXPORT(AddFp8);
void AddFp8(const Fp8Format& format, float scale, const uint8_t* codes, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddFp8)(format, scale, codes, sum, count);
}

}  // namespace sluice::compress
#endif
