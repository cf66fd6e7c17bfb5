// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/rotation.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/rotation.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Masks and sums work in groups of 16 elements, in one vector or in several shorter ones.
constexpr size_t kGroup = 16;
using Tag = hn::CappedTag<float, kGroup>;
constexpr size_t kLanes = hn::MaxLanes(Tag());
constexpr size_t kVectors = kGroup / kLanes;

using Vector = hn::Vec<Tag>;
using Mask = hn::Mask<Tag>;

HWY_INLINE Mask MaskOfBits(uint32_t group, size_t vector) {
  uint8_t bytes[8] = {};
  const uint32_t bits = group >> (vector * kLanes);
  std::memcpy(bytes, &bits, sizeof(bits));
  return hn::LoadMaskBits(Tag(), bytes);
}

HWY_INLINE uint32_t BitsOfMask(Mask mask, size_t vector) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(Tag(), mask, bytes);
  uint32_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return (bits & ((1u << kLanes) - 1)) << (vector * kLanes);
}

HWY_INLINE uint32_t GroupAt(const void* bits, size_t i) {
  uint16_t group;
  std::memcpy(&group, static_cast<const uint8_t*>(bits) + i / 8, sizeof(group));
  return group;
}

HWY_INLINE void StoreGroup(uint32_t group, size_t i, uint8_t* plane) {
  const auto bits = static_cast<uint16_t>(group);
  std::memcpy(plane + i / 8, &bits, sizeof(bits));
}

HWY_INLINE float SumOfLanes(const Vector* sums) {
  const Tag d;
  float lanes[kGroup];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, lanes + v * kLanes);
  for (size_t half = kGroup / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

HWY_INLINE Vector NegateWhere(Mask mask, Vector v) { return hn::IfThenElse(mask, hn::Neg(v), v); }

#if HWY_TARGET != HWY_SCALAR
// Replaces each pair (a, b) of lanes that are `stride` apart with (a + b, a - b). `swapped` is v
// with the two lanes of each pair exchanged.
HWY_INLINE Vector Butterfly(Vector v, Vector swapped, uint32_t stride) {
  const Tag d;
  const hn::RebindToUnsigned<Tag> du;
  const auto lane = hn::And(hn::Iota(du, 0), hn::Set(du, stride));
  const auto upper =
      hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(du, hn::Ne(lane, hn::Zero(du)))));
  return hn::Add(swapped, NegateWhere(upper, v));
}
#endif

// Performs the transform for all strides within a vector.
HWY_INLINE Vector ButterfliesWithin(Vector v) {
#if HWY_TARGET != HWY_SCALAR
  v = Butterfly(v, hn::Shuffle2301(v), 1);
  v = Butterfly(v, hn::Shuffle1032(v), 2);
#if HWY_MAX_BYTES >= 32
  v = Butterfly(v, hn::SwapAdjacentBlocks(v), 4);
#endif
#if HWY_MAX_BYTES >= 64
  v = Butterfly(v, hn::ConcatLowerUpper(Tag(), v, v), 8);
#endif
#endif
  return v;
}

// Performs the transform for the strides h and 2h at once.
HWY_INLINE void TwoStrides(float* HWY_RESTRICT x, size_t h) {
  const Tag d;
  for (size_t i = 0; i < h; i += kLanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + h + i);
    const auto c = hn::LoadU(d, x + 2 * h + i), e = hn::LoadU(d, x + 3 * h + i);
    const auto ab = hn::Add(a, b), amb = hn::Sub(a, b);
    const auto ce = hn::Add(c, e), cme = hn::Sub(c, e);
    hn::StoreU(hn::Add(ab, ce), d, x + i);
    hn::StoreU(hn::Add(amb, cme), d, x + h + i);
    hn::StoreU(hn::Sub(ab, ce), d, x + 2 * h + i);
    hn::StoreU(hn::Sub(amb, cme), d, x + 3 * h + i);
  }
}

HWY_INLINE void OneStride(float* HWY_RESTRICT x, size_t h) {
  const Tag d;
  for (size_t i = 0; i < h; i += kLanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + h + i);
    hn::StoreU(hn::Add(a, b), d, x + i);
    hn::StoreU(hn::Sub(a, b), d, x + h + i);
  }
}

void WalshHadamard(float* HWY_RESTRICT x, size_t size) {
  const Tag d;
  for (size_t i = 0; i < size; i += kLanes) {
    hn::StoreU(ButterfliesWithin(hn::LoadU(d, x + i)), d, x + i);
  }
  size_t h = kLanes;
  for (; 4 * h <= size; h *= 4) {
    for (size_t at = 0; at < size; at += 4 * h) TwoStrides(x + at, h);
  }
  if (h < size) OneStride(x, h);
}

float FlipSigns(const float* x, const uint64_t* HWY_RESTRICT signs, float scale, float* y,
                size_t size) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  Vector sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (size_t i = 0; i < size; i += kGroup) {
    const uint32_t group = GroupAt(signs, i);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = i + v * kLanes;
      const auto scaled = hn::Mul(hn::LoadU(d, x + at), by);
      sums[v] = hn::Add(sums[v], hn::Mul(scaled, scaled));
      hn::StoreU(NegateWhere(MaskOfBits(group, v), scaled), d, y + at);
    }
  }
  return SumOfLanes(sums);
}

template <int kBits>
struct Magnitudes {
  static constexpr size_t kLevels = RotatedMagnitudesOf(kBits);
  constexpr Magnitudes() {
    for (uint32_t k = 0; k < kLevels; ++k) at[k] = RotatedMagnitude(kBits, k);
  }
  float at[kLevels];
};

template <int kBits>
HWY_INLINE RotatedSums Quantize(const float* HWY_RESTRICT y, float unit,
                                uint8_t* HWY_RESTRICT planes, size_t size) {
  constexpr Magnitudes<kBits> kMagnitudes;
  constexpr size_t kLevels = kMagnitudes.kLevels;
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  // From limits[k] on, magnitude k is nearer than magnitude k - 1.
  float limits[kLevels] = {};
  for (size_t k = 1; k < kLevels; ++k) {
    limits[k] = (kMagnitudes.at[k - 1] + kMagnitudes.at[k]) * 0.5f * unit;
  }
  Vector products[kVectors], energies[kVectors];
  for (size_t v = 0; v < kVectors; ++v) products[v] = energies[v] = hn::Zero(d);
  const size_t plane_size = size / 8;
  for (size_t i = 0; i < size; i += kGroup) {
    uint32_t groups[kBits] = {};
    for (size_t v = 0; v < kVectors; ++v) {
      const auto value = hn::LoadU(d, y + i + v * kLanes);
      const auto magnitude = hn::Abs(value);
      auto code = hn::Set(d, kMagnitudes.at[0]);
      auto index = hn::Zero(di);
      for (size_t k = 1; k < kLevels; ++k) {
        const auto above = hn::Ge(magnitude, hn::Set(d, limits[k]));
        code = hn::IfThenElse(above, hn::Set(d, kMagnitudes.at[k]), code);
        index = hn::Sub(index, hn::BitCast(di, hn::VecFromMask(d, above)));
      }
      products[v] = hn::Add(products[v], hn::Mul(magnitude, code));
      energies[v] = hn::Add(energies[v], hn::Mul(code, code));
      groups[0] |= BitsOfMask(hn::Lt(value, hn::Zero(d)), v);
      for (int bit = 1; bit < kBits; ++bit) {
        const auto one = hn::TestBit(index, hn::Set(di, 1 << (bit - 1)));
        groups[bit] |= BitsOfMask(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, one))), v);
      }
    }
    for (int bit = 0; bit < kBits; ++bit) {
      StoreGroup(groups[bit], i, planes + static_cast<size_t>(bit) * plane_size);
    }
  }
  return {.product = SumOfLanes(products), .energy = SumOfLanes(energies)};
}

RotatedSums QuantizeRotated(const float* y, float unit, int bits, uint8_t* planes, size_t size) {
  switch (bits) {
    case 1:
      return Quantize<1>(y, unit, planes, size);
    case 2:
      return Quantize<2>(y, unit, planes, size);
    case 3:
      return Quantize<3>(y, unit, planes, size);
    default:
      return Quantize<4>(y, unit, planes, size);
  }
}

template <int kBits>
HWY_INLINE void Expand(const uint8_t* HWY_RESTRICT planes, float* HWY_RESTRICT y, size_t size) {
  constexpr Magnitudes<kBits> kMagnitudes;
  constexpr size_t kLevels = kMagnitudes.kLevels;
  const Tag d;
  const size_t plane_size = size / 8;
  for (size_t i = 0; i < size; i += kGroup) {
    for (size_t v = 0; v < kVectors; ++v) {
      Vector level[kLevels];
      for (size_t k = 0; k < kLevels; ++k) level[k] = hn::Set(d, kMagnitudes.at[k]);
      // Each bit of the index halves the number of remaining choices.
      for (int bit = 1; bit < kBits; ++bit) {
        const auto one = MaskOfBits(GroupAt(planes + static_cast<size_t>(bit) * plane_size, i), v);
        for (size_t k = 0; k < kLevels >> bit; ++k) {
          level[k] = hn::IfThenElse(one, level[2 * k + 1], level[2 * k]);
        }
      }
      const auto negative = MaskOfBits(GroupAt(planes, i), v);
      hn::StoreU(NegateWhere(negative, level[0]), d, y + i + v * kLanes);
    }
  }
}

void ExpandRotated(const uint8_t* planes, int bits, float* y, size_t size) {
  switch (bits) {
    case 1:
      return Expand<1>(planes, y, size);
    case 2:
      return Expand<2>(planes, y, size);
    case 3:
      return Expand<3>(planes, y, size);
    default:
      return Expand<4>(planes, y, size);
  }
}

void AddFlipped(const float* HWY_RESTRICT y, const uint64_t* HWY_RESTRICT signs, float scale,
                float* HWY_RESTRICT sum, size_t size) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  for (size_t i = 0; i < size; i += kGroup) {
    const uint32_t group = GroupAt(signs, i);
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = i + v * kLanes;
      const auto value = NegateWhere(MaskOfBits(group, v), hn::Mul(hn::LoadU(d, y + at), by));
      hn::StoreU(hn::Add(hn::LoadU(d, sum + at), value), d, sum + at);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(WalshHadamard);
void WalshHadamard(float* x, size_t size) { HWY_DYNAMIC_DISPATCH(WalshHadamard)(x, size); }

HWY_EXPORT(FlipSigns);
float FlipSigns(const float* x, const uint64_t* signs, float scale, float* y, size_t size) {
  return HWY_DYNAMIC_DISPATCH(FlipSigns)(x, signs, scale, y, size);
}

HWY_EXPORT(QuantizeRotated);
RotatedSums QuantizeRotated(const float* y, float unit, int bits, uint8_t* planes, size_t size) {
  return HWY_DYNAMIC_DISPATCH(QuantizeRotated)(y, unit, bits, planes, size);
}

HWY_EXPORT(ExpandRotated);
void ExpandRotated(const uint8_t* planes, int bits, float* y, size_t size) {
  HWY_DYNAMIC_DISPATCH(ExpandRotated)(planes, bits, y, size);
}

HWY_EXPORT(AddFlipped);
void AddFlipped(const float* y, const uint64_t* signs, float scale, float* sum, size_t size) {
  HWY_DYNAMIC_DISPATCH(AddFlipped)(y, signs, scale, sum, size);
}

}  // namespace sluice::compress
#endif
