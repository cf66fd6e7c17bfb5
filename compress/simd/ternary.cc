#include "compress/simd/ternary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/simd/ternary.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "compress/simd/bits-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block's later passes keep the processor from looking ahead by itself.
constexpr size_t kAhead = 2 * kTernaryBlock;

// Makes acc in place and returns its largest magnitude.
HWY_INLINE float AccumulateBlock(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  auto largest = hn::Zero(du);
  for (size_t i = 0; i < kTernaryBlock; i += hn::Lanes(df)) {
    hwy::Prefetch(gradient + i + kAhead);
    hwy::Prefetch(residual + i + kAhead);
    const auto acc = hn::Add(hn::LoadU(df, gradient + i), hn::LoadU(df, residual + i));
    hn::StoreU(acc, df, residual + i);
    largest = hn::Max(largest, hn::BitCast(du, hn::Abs(acc)));
  }
  return hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(du, largest)));
}

// The code of the mean magnitude of what reaches `tau`. The sum is in fp64, which cannot overflow,
// and in 8 lanes on every instruction set.
HWY_INLINE uint32_t MeanCode(const float* HWY_RESTRICT acc, float tau, size_t kept) {
  constexpr size_t kLanes = 8;
  const hn::CappedTag<double, kLanes> dd;
  const hn::Rebind<float, decltype(dd)> df;
  constexpr size_t kVectors = kLanes / hn::MaxLanes(dd);
  const auto least = hn::Set(df, tau);
  hn::Vec<decltype(dd)> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(dd);
  for (size_t i = 0; i < kTernaryBlock; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::Abs(hn::LoadU(df, acc + i + v * hn::Lanes(df)));
      sums[v] = hn::Add(sums[v], hn::PromoteTo(dd, hn::IfThenElseZero(hn::Ge(x, least), x)));
    }
  }
  double lanes[kLanes];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], dd, lanes + v * hn::Lanes(dd));
  double total = 0;
  for (const double lane : lanes) total += lane;
  const auto mean = static_cast<float>(total / static_cast<double>(kept));
  uint32_t bits;
  hwy::CopyBytes<sizeof(bits)>(&mean, &bits);
  // To nearest even.
  const uint32_t half = (1 << (kTernaryScaleShift - 1)) - 1;
  const uint32_t code = (bits + half + ((bits >> kTernaryScaleShift) & 1)) >> kTernaryScaleShift;
  return HWY_MIN(code, kTernaryScaleMax);
}

HWY_INLINE void SubtractKept(float tau, uint32_t code, float* HWY_RESTRICT residual) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto least = hn::Set(df, tau);
  const auto scale = hn::BitCast(df, hn::Set(du, code << kTernaryScaleShift));
  for (size_t i = 0; i < kTernaryBlock; i += hn::Lanes(df)) {
    const auto acc = hn::LoadU(df, residual + i);
    const auto kept = hn::Ge(hn::Abs(acc), least);
    const auto decoded = hn::IfThenElseZero(kept, hn::CopySign(scale, acc));
    hn::StoreU(hn::Sub(acc, decoded), df, residual + i);
  }
}

void EncodeTernary(const float* HWY_RESTRICT gradient, float* HWY_RESTRICT residual, float share,
                   TernaryBlock* HWY_RESTRICT blocks, size_t count) {
  const hn::CappedTag<float, 16> df;
  constexpr float kLeast = 1.4012984643248171e-45f;  // Above 0, so that zeros are never kept.
  for (size_t block = 0; block < count; ++block) {
    TernaryBlock& out = blocks[block];
    const float largest = AccumulateBlock(gradient, residual);
    const float tau = HWY_MAX(share * largest, kLeast);
    size_t kept = 0;
    for (size_t word = 0; word < kTernaryBlock / 64; ++word) {
      const float* acc = residual + 64 * word;
      out.kept[word] =
          Bits64(df, acc, [&](auto x) HWY_ATTR { return hn::Ge(hn::Abs(x), hn::Set(df, tau)); });
      out.negative[word] =
          Bits64(df, acc, [&](auto x) HWY_ATTR { return hn::Lt(x, hn::Zero(df)); });
      kept += hwy::PopCount(out.kept[word]);
    }
    out.scale = kept > 0 ? MeanCode(residual, tau, kept) : 0;
    if (out.scale > 0) {
      SubtractKept(tau, out.scale, residual);
    } else {
      for (uint64_t& word : out.kept) word = 0;
    }
    gradient += kTernaryBlock;
    residual += kTernaryBlock;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice {

HWY_EXPORT(EncodeTernary);
void EncodeTernary(const float* gradient, float* residual, float share, TernaryBlock* blocks,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(EncodeTernary)(gradient, residual, share, blocks, count);
}

}  // namespace sluice
#endif
