// SPDX-License-Identifier: Apache-2.0
#include "compress/simd/select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/select.cc"
#include "hwy/foreach_target.h"
// This include must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// If a tile has at least kDense kept elements, a branch that skips elements would be mispredicted
// too often.
constexpr size_t kTile = 512;
constexpr size_t kDense = 2;

// Finds the positions to keep in whole tiles of whole vectors. The class compresses the kept lanes
// in a register and stores the whole vector, which may reach into the slack, because storing only
// the kept lanes is slow on some machines.
class Selector {
 public:
  Selector(float tau, uint32_t first, uint32_t* HWY_RESTRICT positions)
      : limit_(hn::Set(df_, tau)), first_(first), positions_(positions) {}

  HWY_INLINE void Tile(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                       size_t at) {
    const size_t before = kept_;
    if (dense_) {
      for (size_t i = 0; i < kTile; i += hn::Lanes(df_)) {
        Keep(Accumulate(gradient + i, residual + i), at + i);
      }
    } else {
      Sparse(gradient, residual, at);
    }
    dense_ = kept_ - before >= kDense;
  }

  size_t kept() const { return kept_; }

 private:
  using DF = hn::CappedTag<float, 16>;
  using V = hn::Vec<DF>;

  HWY_INLINE V Accumulate(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual) {
    const V acc = hn::Add(hn::LoadU(df_, gradient), hn::LoadU(df_, residual));
    hn::StoreU(acc, df_, residual);
    return acc;
  }

  HWY_INLINE void Keep(V acc, size_t at) {
    const hn::RebindToUnsigned<DF> du;
    const auto large = hn::Ge(hn::Abs(acc), limit_);
    const auto here = hn::Add(iota_, hn::Set(du, first_ + static_cast<uint32_t>(at)));
    hn::StoreU(hn::Compress(here, hn::RebindMask(du, large)), du, positions_ + kept_);
    kept_ += hn::CountTrue(df_, large);
  }

  // Four vectors share one test, which usually finds no kept element.
  HWY_INLINE void Sparse(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual,
                         size_t at) {
    const size_t lanes = hn::Lanes(df_);
    for (size_t i = 0; i < kTile; i += 4 * lanes) {
      const V a0 = Accumulate(gradient + i, residual + i);
      const V a1 = Accumulate(gradient + i + lanes, residual + i + lanes);
      const V a2 = Accumulate(gradient + i + 2 * lanes, residual + i + 2 * lanes);
      const V a3 = Accumulate(gradient + i + 3 * lanes, residual + i + 3 * lanes);
      const V largest =
          hn::Max(hn::Max(hn::Abs(a0), hn::Abs(a1)), hn::Max(hn::Abs(a2), hn::Abs(a3)));
      if (hn::AllFalse(df_, hn::Ge(largest, limit_))) continue;
      Keep(a0, at + i);
      Keep(a1, at + i + lanes);
      Keep(a2, at + i + 2 * lanes);
      Keep(a3, at + i + 3 * lanes);
    }
  }

  const DF df_;
  const V limit_;
  // It starts at 0, because the compiler builds an Iota with a variable start lane by lane.
  const hn::Vec<hn::RebindToUnsigned<DF>> iota_ = hn::Iota(hn::RebindToUnsigned<DF>(), 0);
  const uint32_t first_;
  uint32_t* HWY_RESTRICT const positions_;
  size_t kept_ = 0;
  bool dense_ = false;
};

size_t SelectAbove(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual, size_t count,
                   float tau, uint32_t first, uint32_t* HWY_RESTRICT positions,
                   float* HWY_RESTRICT values) {
  Selector selector(tau, first, positions);
  size_t i = 0;
  for (; i + kTile <= count; i += kTile) selector.Tile(gradient + i, residual + i, i);
  size_t kept = selector.kept();
  for (; i < count; ++i) {
    const float acc = gradient[i] + residual[i];
    residual[i] = acc;
    if ((acc < 0 ? -acc : acc) < tau) continue;
    positions[kept++] = first + static_cast<uint32_t>(i);
  }
  for (size_t k = 0; k < kept; ++k) values[k] = residual[positions[k] - first];
  return kept;
}

void GapsOf(const uint32_t* HWY_RESTRICT positions, size_t count, uint32_t* HWY_RESTRICT gaps) {
  if (count == 0) return;
  const hn::ScalableTag<uint32_t> du;
  const auto one = hn::Set(du, 1);
  gaps[0] = positions[0];
  size_t i = 1;
  for (; i + hn::Lanes(du) <= count; i += hn::Lanes(du)) {
    const auto gap = hn::Sub(hn::LoadU(du, positions + i), hn::LoadU(du, positions + i - 1));
    hn::StoreU(hn::Sub(gap, one), du, gaps + i);
  }
  for (; i < count; ++i) gaps[i] = positions[i] - positions[i - 1] - 1;
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compress {

HWY_EXPORT(SelectAbove);
size_t SelectAbove(const float* gradient, float* residual, size_t count, float tau, uint32_t first,
                   uint32_t* positions, float* values) {
  return HWY_DYNAMIC_DISPATCH(SelectAbove)(gradient, residual, count, tau, first, positions,
                                           values);
}

HWY_EXPORT(GapsOf);
void GapsOf(const uint32_t* positions, size_t count, uint32_t* gaps) {
  HWY_DYNAMIC_DISPATCH(GapsOf)(positions, count, gaps);
}

}  // namespace sluice::compress
#endif
