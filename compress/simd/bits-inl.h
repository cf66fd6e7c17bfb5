// SPDX-License-Identifier: Apache-2.0
// Functions for kernels that compare 64 floats and return the results as the bits of a word.
// Included once per instruction set.
#if defined(SLUICE_COMPRESS_SIMD_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_COMPRESS_SIMD_BITS_INL_H_
#undef SLUICE_COMPRESS_SIMD_BITS_INL_H_
#else
#define SLUICE_COMPRESS_SIMD_BITS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {

// Returns the lanes of a mask as bits; the first lane is the lowest bit.
template <class D, class M>
HWY_INLINE uint64_t LaneBits(D d, M mask) {
  uint8_t bytes[8] = {};
  hwy::HWY_NAMESPACE::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  hwy::CopyBytes<sizeof(bits)>(bytes, &bits);
  return bits & ((uint64_t{1} << hwy::HWY_NAMESPACE::Lanes(d)) - 1);
}

// Returns the mask whose lanes are the lowest bits. This is the inverse of LaneBits.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Mask<D> MaskOfBits(D d, uint64_t bits) {
  uint8_t bytes[8];
  hwy::CopyBytes<sizeof(bits)>(&bits, bytes);
  return hwy::HWY_NAMESPACE::LoadMaskBits(d, bytes);
}

// Sets bit i to predicate(values[i]) for 64 values. `predicate` maps a vector to a mask.
template <class D, class Predicate>
HWY_INLINE uint64_t Bits64(D d, const float* HWY_RESTRICT values, Predicate predicate) {
  uint64_t word = 0;
  for (size_t i = 0; i < 64; i += hwy::HWY_NAMESPACE::Lanes(d)) {
    word |= LaneBits(d, predicate(hwy::HWY_NAMESPACE::LoadU(d, values + i))) << i;
  }
  return word;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#endif
