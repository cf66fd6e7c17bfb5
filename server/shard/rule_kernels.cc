// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rule_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/shard/rule_kernels.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "compress/simd/vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::server {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using compress::HWY_NAMESPACE::ForEachVector;

// Returns a * x + b * y. Each of the three operations rounds.
template <class DF, class V>
HWY_INLINE V Blend(DF df, float a, V x, float b, V y) {
  return hn::Add(hn::Mul(hn::Set(df, a), x), hn::Mul(hn::Set(df, b), y));
}

// Returns the gradient with weight decay added.
template <class DF, class V>
HWY_INLINE V Decayed(DF df, const float* HWY_RESTRICT gradient, float decay, V parameters) {
  const auto raw = hn::LoadU(df, gradient);
  return decay == 0 ? raw : hn::Add(raw, hn::Mul(hn::Set(df, decay), parameters));
}

template <class DF, class V>
HWY_INLINE void Descend(DF df, float rate, V direction, V parameters, float* HWY_RESTRICT out) {
  hn::StoreU(hn::Sub(parameters, hn::Mul(hn::Set(df, rate), direction)), df, out);
}

void ApplySgd(const SgdNumbers& n, const float* HWY_RESTRICT gradient,
              float* HWY_RESTRICT parameters, float* HWY_RESTRICT momentum_slot, size_t count) {
  if (momentum_slot == nullptr) {
    ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
      const auto w = hn::LoadU(df, parameters + i);
      Descend(df, n.rate, Decayed(df, gradient + i, n.decay, w), w, parameters + i);
    });
    return;
  }
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto w = hn::LoadU(df, parameters + i);
    const auto g = Decayed(df, gradient + i, n.decay, w);
    const auto m = Blend(df, n.momentum, hn::LoadU(df, momentum_slot + i), 1, g);
    hn::StoreU(m, df, momentum_slot + i);
    Descend(df, n.rate, n.nesterov ? Blend(df, n.momentum, m, 1, g) : m, w, parameters + i);
  });
}

void ApplyAdam(const AdamNumbers& n, const float* HWY_RESTRICT gradient,
               float* HWY_RESTRICT parameters, float* HWY_RESTRICT first,
               float* HWY_RESTRICT second, size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto old = hn::LoadU(df, parameters + i);
    const auto w = n.keep == 1 ? old : hn::Mul(old, hn::Set(df, n.keep));
    const auto g = Decayed(df, gradient + i, n.decay, w);
    const auto m = Blend(df, n.beta1, hn::LoadU(df, first + i), n.rest1, g);
    const auto v = Blend(df, n.beta2, hn::LoadU(df, second + i), n.rest2, hn::Mul(g, g));
    hn::StoreU(m, df, first + i);
    hn::StoreU(v, df, second + i);
    const auto root = hn::Div(hn::Sqrt(v), hn::Set(df, n.root_correction));
    Descend(df, n.rate, hn::Div(m, hn::Add(root, hn::Set(df, n.eps))), w, parameters + i);
  });
}

void ApplyRmsprop(const RmspropNumbers& n, const float* HWY_RESTRICT gradient,
                  float* HWY_RESTRICT parameters, float* HWY_RESTRICT squares,
                  float* HWY_RESTRICT momentum_slot, size_t count) {
  ForEachVector(count, [&](auto df, size_t i) HWY_ATTR {
    const auto w = hn::LoadU(df, parameters + i);
    const auto g = Decayed(df, gradient + i, n.decay, w);
    const auto v = Blend(df, n.alpha, hn::LoadU(df, squares + i), n.rest, hn::Mul(g, g));
    hn::StoreU(v, df, squares + i);
    auto direction = hn::Div(g, hn::Add(hn::Sqrt(v), hn::Set(df, n.eps)));
    if (momentum_slot != nullptr) {
      direction = Blend(df, n.momentum, hn::LoadU(df, momentum_slot + i), 1, direction);
      hn::StoreU(direction, df, momentum_slot + i);
    }
    Descend(df, n.rate, direction, w, parameters + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::server
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::server {

HWY_EXPORT(ApplySgd);
void ApplySgd(const SgdNumbers& numbers, const float* gradient, float* parameters,
              float* momentum_slot, size_t count) {
  HWY_DYNAMIC_DISPATCH(ApplySgd)(numbers, gradient, parameters, momentum_slot, count);
}

HWY_EXPORT(ApplyAdam);
void ApplyAdam(const AdamNumbers& numbers, const float* gradient, float* parameters, float* first,
               float* second, size_t count) {
  HWY_DYNAMIC_DISPATCH(ApplyAdam)(numbers, gradient, parameters, first, second, count);
}

HWY_EXPORT(ApplyRmsprop);
void ApplyRmsprop(const RmspropNumbers& numbers, const float* gradient, float* parameters,
                  float* squares, float* momentum_slot, size_t count) {
  HWY_DYNAMIC_DISPATCH(ApplyRmsprop)
  (numbers, gradient, parameters, squares, momentum_slot, count);
}

}  // namespace sluice::server
#endif
