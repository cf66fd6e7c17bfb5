#include "compress/simd/select.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/select.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

size_t SelectAbove(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual, size_t count,
                   float tau, uint32_t first, uint32_t* HWY_RESTRICT positions,
                   float* HWY_RESTRICT values) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  const auto limit = hn::Set(df, tau);
  size_t kept = 0;
  size_t i = 0;
  // Compressed in registers and stored whole, into the slack: storing the kept lanes alone is slow
  // on some machines, and a branch for vectors that keep nothing is guessed wrong too often.
  const auto keep = [&](auto acc, size_t at) HWY_ATTR {
    const auto large = hn::Ge(hn::Abs(acc), limit);
    hn::StoreU(hn::Compress(acc, large), df, values + kept);
    hn::StoreU(
        hn::Compress(hn::Iota(du, first + static_cast<uint32_t>(at)), hn::RebindMask(du, large)),
        du, positions + kept);
    kept += hn::CountTrue(df, large);
  };
  // Four at a time share the test that most of the time says no.
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a0 = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
    const auto a1 =
        hn::Add(hn::LoadU(df, gradient + i + lanes), hn::LoadU(df, residual + i + lanes));
    const auto a2 =
        hn::Add(hn::LoadU(df, gradient + i + 2 * lanes), hn::LoadU(df, residual + i + 2 * lanes));
    const auto a3 =
        hn::Add(hn::LoadU(df, gradient + i + 3 * lanes), hn::LoadU(df, residual + i + 3 * lanes));
    hn::StoreU(a0, df, residual + i);
    hn::StoreU(a1, df, residual + i + lanes);
    hn::StoreU(a2, df, residual + i + 2 * lanes);
    hn::StoreU(a3, df, residual + i + 3 * lanes);
    const auto largest =
        hn::Max(hn::Max(hn::Abs(a0), hn::Abs(a1)), hn::Max(hn::Abs(a2), hn::Abs(a3)));
    if (hn::AllFalse(df, hn::Ge(largest, limit))) continue;
    keep(a0, i);
    keep(a1, i + lanes);
    keep(a2, i + 2 * lanes);
    keep(a3, i + 3 * lanes);
  }
  for (; i < count; ++i) {
    const float acc = gradient[i] + residual[i];
    residual[i] = acc;
    if ((acc < 0 ? -acc : acc) < tau) continue;
    positions[kept] = first + static_cast<uint32_t>(i);
    values[kept++] = acc;
  }
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
}  // namespace sluice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice {

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

}  // namespace sluice
#endif
