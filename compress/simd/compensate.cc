// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/compensate.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/compensate.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "compress/simd/vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest magnitude so far. Vectors and single elements are tracked separately.
class Largest {
 public:
  HWY_INLINE Largest() : vectors_(hn::Zero(hn::ScalableTag<uint32_t>())) {}
  template <class D, class V>
  HWY_INLINE void Take(D, V x) {
    const hn::RebindToUnsigned<D> du;
    if constexpr (std::is_same_v<D, hn::ScalableTag<float>>) {
      vectors_ = hn::Max(vectors_, hn::BitCast(du, hn::Abs(x)));
    } else {
      const uint32_t bits = hn::GetLane(hn::BitCast(du, hn::Abs(x)));
      single_ = bits > single_ ? bits : single_;
    }
  }
  HWY_INLINE uint32_t bits() const {
    const uint32_t all = hn::GetLane(hn::MaxOfLanes(hn::ScalableTag<uint32_t>(), vectors_));
    return all > single_ ? all : single_;
  }

 private:
  hn::Vec<hn::ScalableTag<uint32_t>> vectors_;
  uint32_t single_ = 0;
};

uint32_t StepMomentum(float momentum, float factor, const float* gradient, const float* velocity,
                      const float* residual, size_t count, float* out) {
  Largest largest;
  ForEachVector(count, [&](auto d, size_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, momentum), hn::LoadU(d, velocity + i));
    const auto added = hn::Mul(hn::Set(d, factor), hn::LoadU(d, gradient + i));
    const auto moved = hn::Add(kept, added);
    largest.Take(d, hn::Add(moved, hn::LoadU(d, residual + i)));
    if (out != nullptr) hn::StoreU(moved, d, out + i);
  });
  return largest.bits();
}

uint32_t Subtract(const float* a, const float* b, size_t count, float* out) {
  Largest largest;
  ForEachVector(count, [&](auto d, size_t i) HWY_ATTR {
    const auto difference = hn::Sub(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    largest.Take(d, difference);
    if (out != nullptr) hn::StoreU(difference, d, out + i);
  });
  return largest.bits();
}

void AddScaled(float factor, const float* x, size_t count, float* sum) {
  ForEachVector(count, [&](auto d, size_t i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::Set(d, factor), hn::LoadU(d, x + i));
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), scaled), d, sum + i);
  });
}

void ClearWhereSent(const float* sent, size_t count, float* velocity) {
  ForEachVector(count, [&](auto d, size_t i) HWY_ATTR {
    const auto unsent = hn::Eq(hn::LoadU(d, sent + i), hn::Zero(d));
    hn::StoreU(hn::IfThenElseZero(unsent, hn::LoadU(d, velocity + i)), d, velocity + i);
  });
}

double SumOfSquares(const float* x, size_t count) {
  constexpr size_t kLanes = 16;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i + lane < count; ++lane) {
    const double value = x[i + lane];
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(StepMomentum);
uint32_t StepMomentum(float momentum, float factor, const float* gradient, const float* velocity,
                      const float* residual, size_t count, float* out) {
  return HWY_DYNAMIC_DISPATCH(StepMomentum)(momentum, factor, gradient, velocity, residual, count,
                                            out);
}

HWY_EXPORT(Subtract);
uint32_t Subtract(const float* a, const float* b, size_t count, float* out) {
  return HWY_DYNAMIC_DISPATCH(Subtract)(a, b, count, out);
}

HWY_EXPORT(AddScaled);
void AddScaled(float factor, const float* x, size_t count, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(factor, x, count, sum);
}

HWY_EXPORT(ClearWhereSent);
void ClearWhereSent(const float* sent, size_t count, float* velocity) {
  HWY_DYNAMIC_DISPATCH(ClearWhereSent)(sent, count, velocity);
}

HWY_EXPORT(SumOfSquares);
double SumOfSquares(const float* x, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, count);
}

}  // namespace sluice::compress
#endif
