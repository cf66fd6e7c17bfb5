// SPDX-License-Identifier: Apache-2.0
#include "bench/streams.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/streams.cc"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kCarry = 0.75f;

void ReadModifyWrite(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT acc, size_t count) {
  const hn::ScalableTag<float> d;
  const auto carry = hn::Set(d, kCarry);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto kept = hn::Mul(hn::LoadU(d, acc + i), carry);
    hn::StoreU(hn::Add(kept, hn::LoadU(d, gradient + i)), d, acc + i);
  }
  for (; i < count; ++i) acc[i] = acc[i] * kCarry + gradient[i];
}

void SumOfBytes(const int8_t* const* HWY_RESTRICT inputs, int16_t* HWY_RESTRICT out, size_t count) {
  const hn::ScalableTag<int16_t> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto sum = hn::Zero(d);
    for (size_t input = 0; input < kSumInputs; ++input) {
      sum = hn::Add(sum, hn::PromoteTo(d, hn::LoadU(d8, inputs[input] + i)));
    }
    hn::StoreU(sum, d, out + i);
  }
  for (; i < count; ++i) {
    int sum = 0;
    for (size_t input = 0; input < kSumInputs; ++input) sum += inputs[input][i];
    out[i] = static_cast<int16_t>(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::bench {

HWY_EXPORT(ReadModifyWrite);
void ReadModifyWrite(const float* gradient, float* acc, size_t count) {
  HWY_DYNAMIC_DISPATCH(ReadModifyWrite)(gradient, acc, count);
}

HWY_EXPORT(SumOfBytes);
void SumOfBytes(const int8_t* const* inputs, int16_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(SumOfBytes)(inputs, out, count);
}

}  // namespace sluice::bench
#endif
