#include "server/control/momentum.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compress/codec_table.h"

namespace sluice {
namespace {

constexpr double kSparseLow = 0.10;
constexpr double kSparseHigh = 0.50;
constexpr double kBitsEnough = 4;
constexpr double kShareMin = 0.01;
// So that a mean staleness of 4.5 (0 to 9) turns 0.9 into the 0.5 that was measured to do well.
constexpr double kStalenessUnit = 1.125;

bool BelowFourBits(const CodecSpec& spec) {
  switch (spec.codec) {
    case CodecId::kInt2:
    case CodecId::kTernGrad:
    case CodecId::kSignSgd:
    case CodecId::kSign:
    case CodecId::kOneBit:
    case CodecId::kTernary:
    case CodecId::kCountSketch:
    case CodecId::kPowerSgd:
      return true;
    case CodecId::kQsgd:
    case CodecId::kEden:
    case CodecId::kIntSum:
      return spec.level < kBitsEnough;
    default:
      return false;
  }
}

// The share of values that a step sends; 1 of codecs that send all.
double DensityOf(const CodecSpec& spec) {
  switch (spec.codec) {
    case CodecId::kTopK:
    case CodecId::kTopKExact:
    case CodecId::kRandomK:
      return spec.level;
    case CodecId::kBlockTopK:
      return 1 / spec.level;
    case CodecId::kThreshold:
      return 0;  // Not known; few, or it would not be used.
    default:
      return 1;
  }
}

double ShareOf(const ControlledTensor& tensor, double all) {
  return static_cast<double>(tensor.elements) / all;
}

}  // namespace

double MomentumWith(const CodecSpec& spec, double base, double coded) {
  const double least = std::min(base, coded);
  if (BelowFourBits(spec)) return least;
  const double density = DensityOf(spec);
  if (density >= kSparseHigh) return base;
  if (density <= kSparseLow) return least;
  const double way = std::log(density / kSparseLow) / std::log(kSparseHigh / kSparseLow);
  return std::lerp(least, base, way);
}

double MomentumFor(const Choice& choice, absl::Span<const ControlledTensor> tensors, double base,
                   double coded) {
  double all = 0;
  for (const ControlledTensor& tensor : tensors) all += static_cast<double>(tensor.elements);
  double momentum = base;
  const auto take = [&](const Coding& coding) {
    for (size_t i = 0; i < coding.codecs.size() && i < tensors.size(); ++i) {
      if (ShareOf(tensors[i], all) <= kShareMin) continue;
      momentum = std::min(momentum, MomentumWith(coding.codecs[i], base, coded));
    }
  };
  for (const Coding& up : choice.up) take(up);
  take(choice.down);
  return momentum;
}

double MomentumWithStaleness(double momentum, double staleness) {
  return std::max(0.0, 1 - (1 - momentum) * (1 + std::max(staleness, 0.0) / kStalenessUnit));
}

double BufferFactor(double before, double now) {
  Check(before >= 0 && before < 1 && now >= 0 && now < 1, "a momentum is in [0, 1)");
  return (1 - before) / (1 - now);
}

double SgdRateFactor(double base, double now) {
  Check(base >= 0 && base < 1 && now >= 0 && now < 1, "a momentum is in [0, 1)");
  return (1 - now) / (1 - base);
}

}  // namespace sluice
