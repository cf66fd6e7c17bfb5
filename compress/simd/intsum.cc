// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/intsum.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/intsum.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Handles one vector. With one lane, it handles a single element at the end of a block.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> QuantizeAt(DF df, const float* HWY_RESTRICT gradient,
                                                        float* HWY_RESTRICT residual, float scale,
                                                        float inverse, float largest,
                                                        int8_t* HWY_RESTRICT codes) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<int8_t, DF> d8;
  const auto acc = hn::Add(hn::LoadU(df, gradient), hn::LoadU(df, residual));
  // Clamping before rounding never overflows, and the result is the same because the limits are
  // integers.
  const auto rounded = hn::Round(hn::Min(
      hn::Max(hn::Mul(acc, hn::Set(df, inverse)), hn::Set(df, -largest)), hn::Set(df, largest)));
  // Adding zero turns -0.0 into 0.0, which is the value that the receiver decodes.
  const auto code = hn::Add(rounded, hn::Zero(df));
  hn::StoreU(hn::Sub(acc, hn::Mul(code, hn::Set(df, scale))), df, residual);
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(hn::RebindToSigned<DF>(), code)), d8, codes);
  return hn::BitCast(du, hn::Abs(acc));
}

uint32_t QuantizeToPowerOfTwo(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                              float scale, float inverse, int largest, int8_t* HWY_RESTRICT codes,
                              size_t count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::CappedTag<float, 1> df1;
  const hn::RebindToUnsigned<decltype(df1)> du1;
  const auto limit = static_cast<float>(largest);
  auto most = hn::Zero(du);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    most =
        hn::Max(most, QuantizeAt(df, gradient + i, residual + i, scale, inverse, limit, codes + i));
  }
  auto most1 = hn::Set(du1, hn::GetLane(hn::MaxOfLanes(du, most)));
  for (; i < count; ++i) {
    most1 = hn::Max(most1,
                    QuantizeAt(df1, gradient + i, residual + i, scale, inverse, limit, codes + i));
  }
  return hn::GetLane(most1);
}

// kBits is a template parameter so that shift counts are constants.
template <int kBits>
HWY_INLINE void Pack(const int8_t* HWY_RESTRICT codes, uint8_t* HWY_RESTRICT out, size_t count) {
  constexpr size_t kPlanes = 8 / kBits;
  constexpr uint8_t kMask = (1 << kBits) - 1;
  const hn::ScalableTag<uint8_t> d;
  const size_t size = (count + kPlanes - 1) / kPlanes;
  const auto* in = reinterpret_cast<const uint8_t*>(codes);
  size_t i = 0;
  if (count == size * kPlanes) {
    const auto mask = hn::Set(d, kMask);
    for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
      auto byte = hn::And(hn::LoadU(d, in + i), mask);
      for (size_t plane = 1; plane < kPlanes; ++plane) {
        const auto code = hn::And(hn::LoadU(d, in + plane * size + i), mask);
        byte = hn::Or(byte, hn::ShiftLeftSame(code, static_cast<int>(plane) * kBits));
      }
      hn::StoreU(byte, d, out + i);
    }
  }
  for (; i < size; ++i) {
    unsigned byte = 0;
    for (size_t plane = 0; plane < kPlanes && plane * size + i < count; ++plane) {
      byte |= static_cast<unsigned>(in[plane * size + i] & kMask) << (plane * kBits);
    }
    out[i] = static_cast<uint8_t>(byte);
  }
}

void PackCodes(const int8_t* codes, int bits, uint8_t* out, size_t count) {
  if (bits == 2) return Pack<2>(codes, out, count);
  if (bits == 4) return Pack<4>(codes, out, count);
  Pack<8>(codes, out, count);
}

template <int kBits>
HWY_INLINE void Unpack(const uint8_t* HWY_RESTRICT in, int8_t* HWY_RESTRICT codes, size_t count) {
  constexpr size_t kPlanes = 8 / kBits;
  constexpr uint8_t kMask = (1 << kBits) - 1;
  constexpr uint8_t kSign = 1 << (kBits - 1);
  const hn::ScalableTag<uint8_t> d;
  const size_t size = (count + kPlanes - 1) / kPlanes;
  auto* out = reinterpret_cast<uint8_t*>(codes);
  for (size_t plane = 0; plane < kPlanes; ++plane) {
    const size_t end = std::min(size, count - std::min(count, plane * size));
    const auto shift = static_cast<int>(plane) * kBits;
    size_t i = 0;
    for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
      const auto code = hn::And(hn::ShiftRightSame(hn::LoadU(d, in + i), shift), hn::Set(d, kMask));
      // This sign-extends the code.
      const auto sign = hn::Set(d, kSign);
      hn::StoreU(hn::Sub(hn::Xor(code, sign), sign), d, out + plane * size + i);
    }
    for (; i < end; ++i) {
      const unsigned code = (static_cast<unsigned>(in[i]) >> shift) & kMask;
      out[plane * size + i] = static_cast<uint8_t>((code ^ kSign) - kSign);
    }
  }
}

void UnpackCodes(const uint8_t* in, int bits, int8_t* codes, size_t count) {
  if (bits == 2) return Unpack<2>(in, codes, count);
  if (bits == 4) return Unpack<4>(in, codes, count);
  Unpack<8>(in, codes, count);
}

void AddScaledCodes(const int8_t* HWY_RESTRICT codes, float scale, float* HWY_RESTRICT sum,
                    size_t count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> d8;
  const auto factor = hn::Set(df, scale);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto value = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + i)));
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), hn::Mul(value, factor)), df, sum + i);
  }
  for (; i < count; ++i) sum[i] += static_cast<float>(codes[i]) * scale;
}

constexpr size_t kLine = 64;

HWY_INLINE void PrefetchToWrite(const void* at) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(at, 1);
#else
  (void)at;
#endif
}

// Returns the sums of kFrames codes of 2 or 4 bits in a vector of bytes. The function adds unsigned
// codes (0 to 15), which need no sign extension, and corrects the offset once at the end.
template <int kBits, int kShift, size_t kFrames, class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> SumOfPlane(D d, const uint8_t* const* HWY_RESTRICT blocks,
                                                     size_t at) {
  constexpr uint8_t kMask = (1 << kBits) - 1;
  constexpr uint8_t kSign = 1 << (kBits - 1);
  const auto signs = hn::Set(d, kSign);
  const auto mask = hn::Set(d, kMask);
  auto sum = hn::Zero(d);
  for (size_t f = 0; f < kFrames; ++f) {
    const auto code = hn::And(hn::ShiftRightSame(hn::LoadU(d, blocks[f] + at), kShift), mask);
    sum = hn::Add(sum, hn::Xor(code, signs));
  }
  const auto shifted = hn::Set(d, static_cast<uint8_t>(kFrames * kSign));
  return hn::BitCast(hn::RebindToSigned<D>(), hn::Sub(sum, shifted));
}

// Adds kFrames blocks. kFrames is a template parameter so that each block has its own load
// instruction; the processor can then detect that the loads are sequential.
template <int kBits, int kShift, size_t kFrames, class Int>
HWY_INLINE void AddPlane(const uint8_t* const* HWY_RESTRICT blocks, bool start,
                         Int* HWY_RESTRICT sums) {
  constexpr size_t kSize = kIntSumBlock * kBits / 8;
  constexpr size_t kAhead = 2 * kIntSumBlock;
  const hn::ScalableTag<Int> ds;
  const hn::Rebind<uint8_t, decltype(ds)> d;
  Int* HWY_RESTRICT const out = sums + kShift / kBits * kSize;
  for (size_t i = 0; i < kSize; i += hn::Lanes(ds)) {
    if (i * sizeof(Int) % kLine == 0) PrefetchToWrite(out + i + kAhead);
    auto sum = start ? hn::Zero(ds) : hn::LoadU(ds, out + i);
    if constexpr (kBits == 8) {
      const hn::RebindToSigned<decltype(d)> d8;
      for (size_t f = 0; f < kFrames; ++f) {
        if (i % kLine == 0) hwy::Prefetch(blocks[f] + i + 2 * kSize);
        const auto codes = hn::BitCast(d8, hn::LoadU(d, blocks[f] + i));
        sum = hn::Add(sum, hn::PromoteTo(ds, codes));
      }
    } else {
      if (kShift == 0 && i % kLine == 0) {
        for (size_t f = 0; f < kFrames; ++f) hwy::Prefetch(blocks[f] + i + 2 * kSize);
      }
      const auto codes = SumOfPlane<kBits, kShift, kFrames>(d, blocks, i);
      if constexpr (sizeof(Int) == 1) {
        sum = hn::Add(sum, codes);
      } else {
        sum = hn::Add(sum, hn::PromoteTo(ds, codes));
      }
    }
    hn::StoreU(sum, ds, out + i);
  }
}

template <int kBits, size_t kFrames, class Int>
HWY_INLINE void AddFrames(const uint8_t* const* HWY_RESTRICT blocks, bool start,
                          Int* HWY_RESTRICT sums) {
  AddPlane<kBits, 0, kFrames>(blocks, start, sums);
  if constexpr (kBits < 8) AddPlane<kBits, kBits, kFrames>(blocks, start, sums);
  if constexpr (kBits < 4) {
    AddPlane<kBits, 2 * kBits, kFrames>(blocks, start, sums);
    AddPlane<kBits, 3 * kBits, kFrames>(blocks, start, sums);
  }
}

template <int kBits, class Int>
HWY_INLINE void AddAllFrames(const uint8_t* const* HWY_RESTRICT blocks, size_t frames, bool start,
                             Int* HWY_RESTRICT sums) {
  size_t f = 0;
  for (; f + 8 <= frames; f += 8) AddFrames<kBits, 8>(blocks + f, start && f == 0, sums);
  for (; f + 4 <= frames; f += 4) AddFrames<kBits, 4>(blocks + f, start && f == 0, sums);
  for (; f < frames; ++f) AddFrames<kBits, 1>(blocks + f, start && f == 0, sums);
}

void AddPackedToInt8(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                     int8_t* sums) {
  if (bits == 2) return AddAllFrames<2>(blocks, frames, start, sums);
  AddAllFrames<4>(blocks, frames, start, sums);
}

void AddPackedToInt16(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                      int16_t* sums) {
  if (bits == 2) return AddAllFrames<2>(blocks, frames, start, sums);
  if (bits == 4) return AddAllFrames<4>(blocks, frames, start, sums);
  AddAllFrames<8>(blocks, frames, start, sums);
}

template <class Int>
HWY_INLINE void Scale(const Int* HWY_RESTRICT sums, float scale, float divisor,
                      float* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<Int, decltype(df)> d;
  const auto factor = hn::Set(df, scale), by = hn::Set(df, divisor);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    PrefetchToWrite(out + i + 2 * kIntSumBlock);
    const auto value = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d, sums + i)));
    hn::StoreU(hn::Div(hn::Mul(value, factor), by), df, out + i);
  }
  for (; i < count; ++i) out[i] = static_cast<float>(sums[i]) * scale / divisor;
}

void ScaleInt8(const int8_t* sums, float scale, float divisor, float* out, size_t count) {
  Scale(sums, scale, divisor, out, count);
}
void ScaleInt16(const int16_t* sums, float scale, float divisor, float* out, size_t count) {
  Scale(sums, scale, divisor, out, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(QuantizeToPowerOfTwo);
uint32_t QuantizeToPowerOfTwo(const float* gradient, float* residual, float scale, float inverse,
                              int largest, int8_t* codes, size_t count) {
  return HWY_DYNAMIC_DISPATCH(QuantizeToPowerOfTwo)(gradient, residual, scale, inverse, largest,
                                                    codes, count);
}

HWY_EXPORT(PackCodes);
void PackCodes(const int8_t* codes, int bits, uint8_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(PackCodes)(codes, bits, out, count);
}

HWY_EXPORT(UnpackCodes);
void UnpackCodes(const uint8_t* in, int bits, int8_t* codes, size_t count) {
  HWY_DYNAMIC_DISPATCH(UnpackCodes)(in, bits, codes, count);
}

HWY_EXPORT(AddScaledCodes);
void AddScaledCodes(const int8_t* codes, float scale, float* sum, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddScaledCodes)(codes, scale, sum, count);
}

HWY_EXPORT(AddPackedToInt8);
void AddPackedToInt8(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                     int8_t* sums) {
  HWY_DYNAMIC_DISPATCH(AddPackedToInt8)(blocks, frames, bits, start, sums);
}

HWY_EXPORT(AddPackedToInt16);
void AddPackedToInt16(const uint8_t* const* blocks, size_t frames, int bits, bool start,
                      int16_t* sums) {
  HWY_DYNAMIC_DISPATCH(AddPackedToInt16)(blocks, frames, bits, start, sums);
}

HWY_EXPORT(ScaleInt8);
void ScaleInt8(const int8_t* sums, float scale, float divisor, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(ScaleInt8)(sums, scale, divisor, out, count);
}

HWY_EXPORT(ScaleInt16);
void ScaleInt16(const int16_t* sums, float scale, float divisor, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(ScaleInt16)(sums, scale, divisor, out, count);
}

}  // namespace sluice::compress
#endif
