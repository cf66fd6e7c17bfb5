// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/linear.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/linear.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/random-inl.h"
#include "compress/simd/vectors-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
HWY_INLINE hn::Vec<DF> AccumulateAt(DF df, const float* HWY_RESTRICT gradient,
                                    float* HWY_RESTRICT residual) {
  const auto acc = hn::Add(hn::LoadU(df, gradient), hn::LoadU(df, residual));
  hn::StoreU(acc, df, residual);
  return acc;
}

uint32_t AccumulateBlock(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                         size_t count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  auto even = hn::Zero(du), odd = hn::Zero(du);
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::Max(even, hn::BitCast(du, hn::Abs(AccumulateAt(df, gradient + i, residual + i))));
    odd = hn::Max(
        odd,
        hn::BitCast(du, hn::Abs(AccumulateAt(df, gradient + i + lanes, residual + i + lanes))));
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(du, hn::Max(even, odd)));
  const hn::CappedTag<float, 1> df1;
  const hn::RebindToUnsigned<decltype(df1)> du1;
  for (; i < count; ++i) {
    const auto acc = AccumulateAt(df1, gradient + i, residual + i);
    const uint32_t bits = hn::GetLane(hn::BitCast(du1, hn::Abs(acc)));
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

ValueRange AccumulateRange(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                           size_t count) {
  const hn::ScalableTag<float> df;
  const hn::CappedTag<float, 1> df1;
  const float first = gradient[0] + residual[0];
  auto least = hn::Set(df, first), largest = hn::Set(df, first);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto acc = AccumulateAt(df, gradient + i, residual + i);
    least = hn::Min(least, acc);
    largest = hn::Max(largest, acc);
  }
  ValueRange range{hn::GetLane(hn::MinOfLanes(df, least)),
                   hn::GetLane(hn::MaxOfLanes(df, largest))};
  for (; i < count; ++i) {
    const float acc = hn::GetLane(AccumulateAt(df1, gradient + i, residual + i));
    range.least = acc < range.least ? acc : range.least;
    range.largest = acc > range.largest ? acc : range.largest;
  }
  return range;
}

// Returns a random number in [0, 1) for each index.
template <class DF>
HWY_INLINE hn::Vec<DF> Uniform(DF df, const IndexedRandom& random, uint32_t index) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto draw = hn::ShiftRight<8>(random.At(du, index));
  return hn::Mul(hn::ConvertTo(df, hn::BitCast(di, draw)), hn::Set(df, 0x1.0p-24f));
}

// Rounds down, or up with a probability that equals the fractional part.
template <class DF>
HWY_INLINE hn::Vec<DF> RoundAtRandom(DF df, hn::Vec<DF> x, hn::Vec<DF> uniform) {
  const auto below = hn::Floor(x);
  const auto up = hn::Lt(uniform, hn::Sub(x, below));
  return hn::Add(below, hn::IfThenElseZero(up, hn::Set(df, 1.0f)));
}

template <class DF>
HWY_INLINE hn::Vec<DF> Clamp(DF df, hn::Vec<DF> x, float least, float most) {
  return hn::Min(hn::Max(x, hn::Set(df, least)), hn::Set(df, most));
}

template <class DF>
HWY_INLINE void StoreSigned(DF df, hn::Vec<DF> acc, hn::Vec<DF> rounded, float scale,
                            float* HWY_RESTRICT left, int8_t* HWY_RESTRICT codes) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  // Adding zero turns -0.0 into 0.0, which is the value that the receiver decodes.
  const auto code = hn::Add(rounded, hn::Zero(df));
  hn::StoreU(hn::Sub(acc, hn::Mul(code, hn::Set(df, scale))), df, left);
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, codes);
}

void QuantizeBlock(float scale, float inverse, int most, float* HWY_RESTRICT acc,
                   int8_t* HWY_RESTRICT codes, size_t count) {
  const auto limit = static_cast<float>(most);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(df, acc + i);
    // Clamping first never overflows, and the result is the same because the limits are integers.
    const auto x = Clamp(df, hn::Mul(value, hn::Set(df, inverse)), -limit, limit);
    StoreSigned(df, value, hn::Round(x), scale, acc + i, codes + i);
  });
}

// Computes acc for a block, and prefetches gradient and residual for later blocks. The explicit
// prefetch is necessary because several passes over a block defeat the processor's own prefetching.
HWY_INLINE uint32_t AccumulateAhead(const float* HWY_RESTRICT gradient,
                                    float* HWY_RESTRICT residual) {
  constexpr size_t kAhead = 4 * kLinearBlock;
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  auto even = hn::Zero(du), odd = hn::Zero(du);
  for (size_t i = 0; i < kLinearBlock; i += 2 * lanes) {
    hwy::Prefetch(gradient + i + kAhead);
    hwy::Prefetch(residual + i + kAhead);
    hwy::Prefetch(gradient + i + lanes + kAhead);
    hwy::Prefetch(residual + i + lanes + kAhead);
    even = hn::Max(even, hn::BitCast(du, hn::Abs(AccumulateAt(df, gradient + i, residual + i))));
    odd = hn::Max(
        odd,
        hn::BitCast(du, hn::Abs(AccumulateAt(df, gradient + i + lanes, residual + i + lanes))));
  }
  return hn::GetLane(hn::MaxOfLanes(du, hn::Max(even, odd)));
}

// Returns the codes of acc, and replaces acc by the rounding errors.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> QuantizeAt(DF df, float* HWY_RESTRICT acc, float scale,
                                                      float inverse, float limit) {
  const auto value = hn::LoadU(df, acc);
  const auto x = Clamp(df, hn::Mul(value, hn::Set(df, inverse)), -limit, limit);
  const hn::RebindToSigned<DF> di;
  const auto code = hn::ConvertTo(di, hn::Round(x));
  hn::StoreU(hn::Sub(value, hn::Mul(hn::ConvertTo(df, code), hn::Set(df, scale))), df, acc);
  return code;
}

template <int kBits>
HWY_INLINE void QuantizeAndPack(float scale, float inverse, float* HWY_RESTRICT acc,
                                uint8_t* HWY_RESTRICT packed) {
  constexpr size_t kBytes = kLinearBlock * kBits / 8;
  constexpr auto kLimit = static_cast<float>((1 << (kBits - 1)) - 1);
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const hn::Rebind<int8_t, decltype(df)> ds8;
  for (size_t i = 0; i < kBytes; i += hn::Lanes(df)) {
    auto byte = QuantizeAt(df, acc + i, scale, inverse, kLimit);
    if constexpr (kBits == 8) {
      hn::StoreU(hn::BitCast(d8, hn::DemoteTo(ds8, byte)), d8, packed + i);
    } else {
      const auto mask = hn::Set(di, (1 << kBits) - 1);
      byte = hn::And(byte, mask);
      const auto next = QuantizeAt(df, acc + kBytes + i, scale, inverse, kLimit);
      byte = hn::Or(byte, hn::ShiftLeft<kBits>(hn::And(next, mask)));
      if constexpr (kBits == 2) {
        const auto third = QuantizeAt(df, acc + 2 * kBytes + i, scale, inverse, kLimit);
        const auto last = QuantizeAt(df, acc + 3 * kBytes + i, scale, inverse, kLimit);
        byte = hn::Or(byte, hn::ShiftLeft<4>(hn::And(third, mask)));
        byte = hn::Or(byte, hn::ShiftLeft<6>(hn::And(last, mask)));
      }
      hn::StoreU(hn::DemoteTo(d8, byte), d8, packed + i);
    }
  }
}

template <int kBits>
HWY_INLINE void EncodeBlocks(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                             uint16_t scale_max, uint16_t* HWY_RESTRICT scales,
                             uint8_t* HWY_RESTRICT packed, size_t blocks) {
  constexpr size_t kBytes = kLinearBlock * kBits / 8;
  constexpr uint32_t kSmallestNormal = 0x0080;
  for (size_t block = 0; block < blocks; ++block) {
    const uint32_t bits = AccumulateAhead(gradient, residual);
    float exact;
    hwy::CopyBytes<sizeof(exact)>(&bits, &exact);
    exact /= static_cast<float>((1 << (kBits - 1)) - 1);
    uint32_t scale_bits;
    hwy::CopyBytes<sizeof(scale_bits)>(&exact, &scale_bits);
    const uint32_t up = (scale_bits + 0xFFFF) >> 16;
    const uint32_t code = up < kSmallestNormal ? 0 : HWY_MIN(up, uint32_t{scale_max});
    scales[block] = static_cast<uint16_t>(code);
    if (code == 0) {
      std::memset(packed, 0, kBytes);
    } else {
      const uint32_t wide = code << 16;
      float scale;
      hwy::CopyBytes<sizeof(scale)>(&wide, &scale);
      QuantizeAndPack<kBits>(scale, 1 / scale, residual, packed);
    }
    gradient += kLinearBlock;
    residual += kLinearBlock;
    packed += kBytes;
  }
}

void EncodeLinearBlocks(const float* gradient, float* residual, int bits, uint16_t scale_max,
                        uint16_t* scales, uint8_t* packed, size_t blocks) {
  if (bits == 8) return EncodeBlocks<8>(gradient, residual, scale_max, scales, packed, blocks);
  if (bits == 4) return EncodeBlocks<4>(gradient, residual, scale_max, scales, packed, blocks);
  EncodeBlocks<2>(gradient, residual, scale_max, scales, packed, blocks);
}

void QuantizeBlockStochastic(float scale, float inverse, int most, uint64_t key, uint32_t index,
                             float* HWY_RESTRICT acc, int8_t* HWY_RESTRICT codes, size_t count) {
  const auto limit = static_cast<float>(most);
  const IndexedRandom random(key);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(df, acc + i);
    const auto x = Clamp(df, hn::Mul(value, hn::Set(df, inverse)), -limit, limit);
    const auto uniform = Uniform(df, random, index + static_cast<uint32_t>(i));
    StoreSigned(df, value, RoundAtRandom(df, x, uniform), scale, acc + i, codes + i);
  });
}

template <class DF>
HWY_INLINE void StoreUnsigned(DF df, hn::Vec<DF> acc, hn::Vec<DF> code, float least, float scale,
                              float* HWY_RESTRICT left, uint8_t* HWY_RESTRICT codes) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  const auto decoded = hn::Add(hn::Set(df, least), hn::Mul(code, hn::Set(df, scale)));
  hn::StoreU(hn::Sub(acc, decoded), df, left);
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, codes);
}

void QuantizeRange(float least, float scale, float inverse, int most, float* HWY_RESTRICT acc,
                   uint8_t* HWY_RESTRICT codes, size_t count) {
  const auto limit = static_cast<float>(most);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(df, acc + i);
    const auto above = hn::Sub(value, hn::Set(df, least));
    const auto x = Clamp(df, hn::Mul(above, hn::Set(df, inverse)), 0, limit);
    StoreUnsigned(df, value, hn::Round(x), least, scale, acc + i, codes + i);
  });
}

void QuantizeRangeStochastic(float least, float scale, float inverse, int most, uint64_t key,
                             uint32_t index, float* HWY_RESTRICT acc, uint8_t* HWY_RESTRICT codes,
                             size_t count) {
  const auto limit = static_cast<float>(most);
  const IndexedRandom random(key);
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto value = hn::LoadU(df, acc + i);
    const auto above = hn::Sub(value, hn::Set(df, least));
    const auto x = Clamp(df, hn::Mul(above, hn::Set(df, inverse)), 0, limit);
    const auto uniform = Uniform(df, random, index + static_cast<uint32_t>(i));
    StoreUnsigned(df, value, RoundAtRandom(df, x, uniform), least, scale, acc + i, codes + i);
  });
}

void AddRange(const uint8_t* HWY_RESTRICT codes, float least, float scale, float* HWY_RESTRICT sum,
              size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    using DF = decltype(df);
    const hn::Rebind<uint8_t, DF> d8;
    const hn::RebindToSigned<DF> di;
    const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + i)));
    const auto value = hn::Add(hn::Set(df, least), hn::Mul(code, hn::Set(df, scale)));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), value), df, sum + i);
  });
}

// Returns the codes that begin at bit kShift of each byte at `bytes`.
template <int kBits, int kShift, class DF>
HWY_INLINE hn::Vec<DF> CodesAt(DF df, const uint8_t* HWY_RESTRICT bytes) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  const auto byte = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(bytes)));
  if constexpr (kBits == 8) return hn::ConvertTo(df, byte);
  // This sign-extends the code.
  return hn::ConvertTo(df, hn::ShiftRight<32 - kBits>(hn::ShiftLeft<32 - kBits - kShift>(byte)));
}

HWY_INLINE void PrefetchToWrite(const void* at) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(at, 1);
#else
  (void)at;
#endif
}

// Adds kFrames blocks. kFrames is a template parameter so that each block has its own load
// instruction; the processor can then detect that the loads are sequential. Products of 8-bit
// numbers are exact, so fusing a product with the sum does not change the result.
template <int kBits, int kShift, size_t kFrames>
HWY_INLINE void AddPlaneOfFrames(const uint8_t* const* HWY_RESTRICT blocks,
                                 const float* HWY_RESTRICT scales, size_t ahead,
                                 float* HWY_RESTRICT sum) {
  constexpr size_t kBytes = kLinearBlock * kBits / 8;
  constexpr size_t kLine = 64;
  constexpr size_t kAhead = 2 * kLinearBlock;
  const hn::CappedTag<float, 16> df;
  const size_t lanes = hn::Lanes(df);
  float* HWY_RESTRICT const to = sum + kShift / kBits * kBytes;
  for (size_t i = 0; i < kBytes; i += 2 * lanes) {
    PrefetchToWrite(to + i + kAhead);
    PrefetchToWrite(to + i + lanes + kAhead);
    auto even = hn::LoadU(df, to + i), odd = hn::LoadU(df, to + i + lanes);
    for (size_t f = 0; f < kFrames; ++f) {
      const uint8_t* const bytes = blocks[f] + i;
      if (kShift == 0 && i % kLine == 0) hwy::Prefetch(bytes + ahead);
      const auto scale = hn::Set(df, scales[f]);
      even = hn::MulAdd(CodesAt<kBits, kShift>(df, bytes), scale, even);
      odd = hn::MulAdd(CodesAt<kBits, kShift>(df, bytes + lanes), scale, odd);
    }
    hn::StoreU(even, df, to + i);
    hn::StoreU(odd, df, to + i + lanes);
  }
}

template <int kBits, size_t kFrames>
HWY_INLINE void AddFrames(const uint8_t* const* HWY_RESTRICT blocks,
                          const float* HWY_RESTRICT scales, size_t ahead, float* HWY_RESTRICT sum) {
  AddPlaneOfFrames<kBits, 0, kFrames>(blocks, scales, ahead, sum);
  if constexpr (kBits < 8) AddPlaneOfFrames<kBits, kBits, kFrames>(blocks, scales, ahead, sum);
  if constexpr (kBits < 4) {
    AddPlaneOfFrames<kBits, 2 * kBits, kFrames>(blocks, scales, ahead, sum);
    AddPlaneOfFrames<kBits, 3 * kBits, kFrames>(blocks, scales, ahead, sum);
  }
}

template <int kBits>
HWY_INLINE void AddAllFrames(const uint8_t* const* HWY_RESTRICT blocks,
                             const float* HWY_RESTRICT scales, size_t frames, size_t ahead,
                             float* HWY_RESTRICT sum) {
  size_t f = 0;
  for (; f + 8 <= frames; f += 8) AddFrames<kBits, 8>(blocks + f, scales + f, ahead, sum);
  for (; f + 4 <= frames; f += 4) AddFrames<kBits, 4>(blocks + f, scales + f, ahead, sum);
  for (; f < frames; ++f) AddFrames<kBits, 1>(blocks + f, scales + f, ahead, sum);
}

void AddScaledBlocks(const uint8_t* const* HWY_RESTRICT blocks, const float* HWY_RESTRICT scales,
                     size_t frames, int bits, size_t ahead, float* HWY_RESTRICT sum) {
  if (bits == 8) return AddAllFrames<8>(blocks, scales, frames, ahead, sum);
  if (bits == 4) return AddAllFrames<4>(blocks, scales, frames, ahead, sum);
  AddAllFrames<2>(blocks, scales, frames, ahead, sum);
}

int LargestCode(const int8_t* HWY_RESTRICT codes, size_t count) {
  const hn::ScalableTag<int8_t> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  auto most = hn::Zero(du);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    // The magnitude of -128 fits only in an unsigned byte.
    const auto code = hn::LoadU(d, codes + i);
    most = hn::Max(most, hn::BitCast(du, hn::Max(code, hn::Sub(hn::Zero(d), code))));
    most = hn::Max(most, hn::IfThenElseZero(hn::Eq(hn::BitCast(du, code), hn::Set(du, 128)),
                                            hn::Set(du, 128)));
  }
  uint8_t lanes[HWY_MAX_BYTES];
  hn::StoreU(most, du, lanes);
  int largest = 0;
  for (size_t lane = 0; lane < hn::Lanes(du); ++lane) {
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  }
  for (; i < count; ++i) {
    const int magnitude = codes[i] < 0 ? -codes[i] : codes[i];
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(AccumulateBlock);
uint32_t AccumulateBlock(const float* gradient, float* residual, size_t count) {
  return HWY_DYNAMIC_DISPATCH(AccumulateBlock)(gradient, residual, count);
}

HWY_EXPORT(AccumulateRange);
ValueRange AccumulateRange(const float* gradient, float* residual, size_t count) {
  return HWY_DYNAMIC_DISPATCH(AccumulateRange)(gradient, residual, count);
}

HWY_EXPORT(QuantizeBlock);
void QuantizeBlock(float scale, float inverse, int most, float* acc, int8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(QuantizeBlock)(scale, inverse, most, acc, codes, count);
}

HWY_EXPORT(EncodeLinearBlocks);
void EncodeLinearBlocks(const float* gradient, float* residual, int bits, uint16_t scale_max,
                        uint16_t* scales, uint8_t* packed, size_t blocks) {
  HWY_DYNAMIC_DISPATCH(EncodeLinearBlocks)
  (gradient, residual, bits, scale_max, scales, packed, blocks);
}

HWY_EXPORT(QuantizeBlockStochastic);
void QuantizeBlockStochastic(float scale, float inverse, int most, uint64_t key, uint32_t index,
                             float* acc, int8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(QuantizeBlockStochastic)
  (scale, inverse, most, key, index, acc, codes, count);
}

HWY_EXPORT(QuantizeRange);
void QuantizeRange(float least, float scale, float inverse, int most, float* acc, uint8_t* codes,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(QuantizeRange)(least, scale, inverse, most, acc, codes, count);
}

HWY_EXPORT(QuantizeRangeStochastic);
void QuantizeRangeStochastic(float least, float scale, float inverse, int most, uint64_t key,
                             uint32_t index, float* acc, uint8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(QuantizeRangeStochastic)
  (least, scale, inverse, most, key, index, acc, codes, count);
}

HWY_EXPORT(AddRange);
void AddRange(const uint8_t* codes, float least, float scale, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddRange)(codes, least, scale, sum, count);
}

HWY_EXPORT(AddScaledBlocks);
void AddScaledBlocks(const uint8_t* const* blocks, const float* scales, size_t frames, int bits,
                     size_t ahead, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddScaledBlocks)(blocks, scales, frames, bits, ahead, sum);
}

HWY_EXPORT(LargestCode);
int LargestCode(const int8_t* codes, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestCode)(codes, count);
}

}  // namespace sluice::compress
#endif
