// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/values.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/values.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kTopByte = 127;
constexpr int kTopNibble = 7;
constexpr uint32_t kNegative = 8;  // The sign bit of a nibble.
// Number of codes that are computed before they are packed. It must be even.
constexpr size_t kTile = 256;

// Calls fn(tag, i) for whole vectors and then for single elements.
template <class Fn>
HWY_INLINE void ForEachVector(size_t count, Fn fn) {
  const hn::CappedTag<float, 16> df;
  const hn::CappedTag<float, 1> df1;
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) fn(df, i);
  for (; i < count; ++i) fn(df1, i);
}

double SumOfMagnitudes(const float* HWY_RESTRICT values, size_t count) {
  constexpr size_t kLanes = 8;
  const hn::CappedTag<double, kLanes> dd;
  const hn::Rebind<float, decltype(dd)> df;
  constexpr size_t kVectors = kLanes / hn::MaxLanes(dd);
  hn::Vec<decltype(dd)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(dd);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::Abs(hn::LoadU(df, values + i + v * hn::Lanes(df)));
      sums[v] = hn::Add(sums[v], hn::PromoteTo(dd, x));
    }
  }
  double lanes[kLanes];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], dd, lanes + v * hn::Lanes(dd));
  for (size_t lane = 0; i < count; ++i, ++lane) {
    const double x = values[i];
    lanes[lane] += x < 0 ? -x : x;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void ToBytes(float step, float* HWY_RESTRICT values, int8_t* HWY_RESTRICT codes, size_t count) {
  const bool flat = !(step > 0);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<int8_t, DF> d8;
    const auto value = hn::LoadU(df, values + i);
    const auto scaled = flat ? hn::Zero(df) : hn::Div(value, hn::Set(df, step));
    const auto clamped = hn::Min(hn::Max(scaled, hn::Set(df, -kTopByte)), hn::Set(df, kTopByte));
    const auto code = hn::ConvertTo(di, hn::Round(clamped));
    const auto decoded = hn::Mul(hn::ConvertTo(df, code), hn::Set(df, step));
    hn::StoreU(hn::Sub(value, decoded), df, values + i);
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  });
}

void FromBytes(float step, const int8_t* HWY_RESTRICT codes, float* HWY_RESTRICT values,
               size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<int8_t, DF> d8;
    const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + i)));
    hn::StoreU(hn::Mul(code, hn::Set(df, step)), df, values + i);
  });
}

// Returns ±(floor + q * step). The product has few bits and is exact, so only the sum is rounded.
template <class DF>
HWY_INLINE hn::Vec<DF> Level(DF df, float floor, float step, hn::Vec<hn::RebindToSigned<DF>> q) {
  return hn::Add(hn::Set(df, floor), hn::Mul(hn::ConvertTo(df, q), hn::Set(df, step)));
}

// Writes one nibble to each byte.
HWY_INLINE void QuantizeNibbles(float floor, float step, float* HWY_RESTRICT values,
                                uint8_t* HWY_RESTRICT nibbles, size_t count) {
  const bool flat = !(step > 0);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> d8;
    const auto value = hn::LoadU(df, values + i);
    const auto above = hn::Max(hn::Sub(hn::Abs(value), hn::Set(df, floor)), hn::Zero(df));
    const auto quotient = flat ? hn::Zero(df) : hn::Div(above, hn::Set(df, step));
    // Halves round up. The limit matters only if the step was rounded to almost zero.
    const auto half_steps = hn::Min(hn::Add(quotient, quotient), hn::Set(df, 2.0f * kTopNibble));
    const auto q = hn::ShiftRight<1>(hn::Add(hn::ConvertTo(di, half_steps), hn::Set(di, 1)));
    const auto negative = hn::Lt(value, hn::Zero(df));
    const auto magnitude = Level(df, floor, step, q);
    const auto decoded = hn::IfThenElse(negative, hn::Neg(magnitude), magnitude);
    hn::StoreU(hn::Sub(value, decoded), df, values + i);
    const auto sign = hn::IfThenElseZero(hn::RebindMask(di, negative),
                                         hn::Set(di, static_cast<int32_t>(kNegative)));
    hn::StoreU(hn::DemoteTo(d8, hn::Or(q, sign)), d8, nibbles + i);
  });
}

void ToNibbles(float floor, float step, float* HWY_RESTRICT values, uint8_t* HWY_RESTRICT packed,
               size_t count) {
  HWY_ALIGN uint8_t nibbles[kTile + 1];
  for (size_t at = 0; at < count; at += kTile) {
    const size_t size = HWY_MIN(kTile, count - at);
    QuantizeNibbles(floor, step, values + at, nibbles, size);
    nibbles[size] = 0;
    uint8_t* const out = packed + at / 2;
    size_t i = 0;
    const hn::ScalableTag<int16_t> d16;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    for (; 2 * (i + hn::Lanes(d16)) <= size; i += hn::Lanes(d16)) {
      int16_t pairs[HWY_MAX_BYTES / sizeof(int16_t)];
      std::memcpy(pairs, nibbles + 2 * i, hn::Lanes(d16) * sizeof(int16_t));
      const auto pair = hn::LoadU(d16, pairs);
      const auto byte = hn::And(hn::Or(pair, hn::ShiftRight<4>(pair)), hn::Set(d16, 0xFF));
      hn::StoreU(hn::DemoteTo(d8, byte), d8, out + i);
    }
    for (; 2 * i < size; ++i) {
      out[i] = static_cast<uint8_t>(nibbles[2 * i] | (nibbles[2 * i + 1] << 4));
    }
  }
}

void FromNibbles(float floor, float step, const uint8_t* HWY_RESTRICT packed,
                 float* HWY_RESTRICT values, size_t count) {
  // Nibbles are unpacked to one per byte, so that whole vectors can be decoded.
  HWY_ALIGN uint8_t nibbles[kTile + HWY_MAX_BYTES];
  for (size_t at = 0; at < count; at += kTile) {
    const size_t size = HWY_MIN(kTile, count - at);
    const uint8_t* const in = packed + at / 2;
    for (size_t i = 0; 2 * i < size; ++i) {
      nibbles[2 * i] = in[i] & 15;
      nibbles[2 * i + 1] = in[i] >> 4;
    }
    ForEachVector(size, [&](auto df, size_t i) HWY_ATTR {
      using DF = decltype(df);
      const hn::RebindToSigned<DF> di;
      const hn::Rebind<uint8_t, DF> d8;
      const auto nibble = hn::PromoteTo(di, hn::LoadU(d8, nibbles + i));
      const auto magnitude = Level(df, floor, step, hn::And(nibble, hn::Set(di, kTopNibble)));
      const auto sign = hn::ShiftLeft<28>(hn::And(nibble, hn::Set(di, int32_t{kNegative})));
      hn::StoreU(hn::BitCast(df, hn::Or(hn::BitCast(di, magnitude), sign)), df, values + at + i);
    });
  }
}

void ToSignBits(float step, float* HWY_RESTRICT values, uint8_t* HWY_RESTRICT bits, size_t count) {
  const hn::CappedTag<float, 16> df;
  const auto above = hn::Set(df, step), below = hn::Set(df, -step);
  const auto zero = hn::Zero(df);
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const uint64_t word = Bits64(df, values + i, [&](auto x) HWY_ATTR { return hn::Lt(x, zero); });
    hwy::CopyBytes<8>(&word, bits + i / 8);
    for (size_t j = i; j < i + 64; j += hn::Lanes(df)) {
      const auto value = hn::LoadU(df, values + j);
      hn::StoreU(hn::Sub(value, hn::IfThenElse(hn::Lt(value, zero), below, above)), df, values + j);
    }
  }
  for (size_t byte = i / 8; 8 * byte < count; ++byte) bits[byte] = 0;
  for (; i < count; ++i) {
    const bool negative = values[i] < 0;
    bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | ((negative ? 1 : 0) << (i % 8)));
    values[i] -= negative ? -step : step;
  }
}

void FromSignBits(float step, const uint8_t* HWY_RESTRICT bits, size_t first,
                  float* HWY_RESTRICT values, size_t count) {
  constexpr size_t kAtOnce = 16;
  const hn::CappedTag<float, kAtOnce> df;
  const auto above = hn::Set(df, step), below = hn::Set(df, -step);
  size_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    const uint8_t* const from = bits + (first + i) / 8;
    const size_t shift = (first + i) % 8;
    uint32_t word = from[0] | (uint32_t{from[1]} << 8);
    if (shift != 0) word |= uint32_t{from[2]} << 16;
    word >>= shift;
    for (size_t j = 0; j < kAtOnce; j += hn::Lanes(df)) {
      const uint32_t lanes = (word >> j) & ((1U << hn::Lanes(df)) - 1);
      hn::StoreU(hn::IfThenElse(MaskOfBits(df, lanes), below, above), df, values + i + j);
    }
  }
  for (; i < count; ++i) {
    const unsigned sign = (bits[(first + i) / 8] >> ((first + i) % 8)) & 1;
    values[i] = sign != 0 ? -step : step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(SumOfMagnitudes);
double SumOfMagnitudes(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfMagnitudes)(values, count);
}

HWY_EXPORT(ToBytes);
void ToBytes(float step, float* values, int8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(ToBytes)(step, values, codes, count);
}

HWY_EXPORT(FromBytes);
void FromBytes(float step, const int8_t* codes, float* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(FromBytes)(step, codes, values, count);
}

HWY_EXPORT(ToNibbles);
void ToNibbles(float floor, float step, float* values, uint8_t* packed, size_t count) {
  HWY_DYNAMIC_DISPATCH(ToNibbles)(floor, step, values, packed, count);
}

HWY_EXPORT(FromNibbles);
void FromNibbles(float floor, float step, const uint8_t* packed, float* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(FromNibbles)(floor, step, packed, values, count);
}

HWY_EXPORT(ToSignBits);
void ToSignBits(float step, float* values, uint8_t* bits, size_t count) {
  HWY_DYNAMIC_DISPATCH(ToSignBits)(step, values, bits, count);
}

HWY_EXPORT(FromSignBits);
void FromSignBits(float step, const uint8_t* bits, size_t first, float* values, size_t count) {
  HWY_DYNAMIC_DISPATCH(FromSignBits)(step, bits, first, values, count);
}

}  // namespace sluice::compress
#endif
