// SPDX-License-Identifier: Apache-2.0
// Loops over vectors, for kernels. Included once per instruction set.
#if defined(SLUICE_COMPRESS_SIMD_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_COMPRESS_SIMD_VECTORS_INL_H_
#undef SLUICE_COMPRESS_SIMD_VECTORS_INL_H_
#else
#define SLUICE_COMPRESS_SIMD_VECTORS_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {

// Calls fn(tag, i) for whole vectors and then for single elements, with a tag of one lane.
template <class Fn>
HWY_INLINE void ForEachVector(size_t count, Fn fn) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> df;
  const hwy::HWY_NAMESPACE::CappedTag<float, 1> df1;
  const size_t lanes = hwy::HWY_NAMESPACE::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) fn(df, i);
  for (; i < count; ++i) fn(df1, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#endif
