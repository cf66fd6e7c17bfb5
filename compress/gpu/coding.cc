#include "compress/gpu/coding.h"

#include <bit>

#include "compress/codecs/randomk.h"
#include "compress/coding/low_rank.h"
#include "compress/coding/position_coding.h"

namespace sluice::compress::gpu {

std::optional<Coding> CodingOf(const CodecSpec& spec, size_t count, uint32_t rows) {
  const bool minmax = spec.has(kMinMax);
  Coding coding;
  coding.stochastic = spec.has(kStochastic);
  coding.index = IndexModeOf(spec);
  coding.values = static_cast<uint8_t>(spec.values);
  const auto of = [&](Algorithm algorithm, int bits = 0) {
    coding.algorithm = algorithm;
    coding.bits = static_cast<uint8_t>(bits);
    return coding;
  };
  switch (spec.codec) {
    case CodecId::kNone:
      return of(Algorithm::kFp32);
    case CodecId::kFp16:
      return of(Algorithm::kFp16);
    case CodecId::kBf16:
      return of(Algorithm::kBf16);
    case CodecId::kFp8:
      return of(spec.has(kE5m2) ? Algorithm::kFp8E5m2 : Algorithm::kFp8);
    case CodecId::kInt8:
      return of(minmax ? Algorithm::kMinMax : Algorithm::kLinear, 8);
    case CodecId::kInt4:
      return of(minmax ? Algorithm::kMinMax : Algorithm::kLinear, 4);
    case CodecId::kInt2:
      return of(Algorithm::kLinear, 2);
    case CodecId::kQsgd:
      return of(Algorithm::kQsgd, static_cast<int>(spec.level));
    case CodecId::kNatural:
      return of(Algorithm::kNatural);
    case CodecId::kIntSum:
      return of(Algorithm::kIntSum, static_cast<int>(spec.level));
    case CodecId::kSign:
      return of(Algorithm::kSign);
    case CodecId::kOneBit:
      return of(Algorithm::kOneBit);
    case CodecId::kSignSgd:
      return of(Algorithm::kSignSgd);
    case CodecId::kTernary:
      coding.share = static_cast<float>(spec.level);
      return of(Algorithm::kTernary);
    case CodecId::kTopK:
    case CodecId::kThreshold:
      return of(Algorithm::kThreshold);
    case CodecId::kBlockTopK:
      return of(Algorithm::kBlockTopK, std::countr_zero(static_cast<uint32_t>(spec.level)));
    case CodecId::kRandomK:
      coding.unbiased = spec.has(kUnbiased);
      return of(Algorithm::kRandomK);
    case CodecId::kEden:
      return of(Algorithm::kEden, static_cast<int>(spec.level));
    case CodecId::kPowerSgd: {
      const auto rank = static_cast<int>(spec.level);
      const bool is_matrix = LowRankShapeFor(count, rows, static_cast<size_t>(rank)).rows > 0;
      return is_matrix ? of(Algorithm::kPowerSgd, rank) : of(Algorithm::kFp16);
    }
    case CodecId::kTernGrad:
    case CodecId::kTopKExact:
    case CodecId::kCountSketch:
    case CodecId::kLsh:
      return std::nullopt;
  }
  return std::nullopt;
}

size_t BytesBefore(const CodecSpec& spec, const Coding& coding) {
  // A chunk that is not a matrix is sent as fp16, after a byte that marks this case.
  return spec.codec == CodecId::kPowerSgd && coding.algorithm == Algorithm::kFp16 ? 1 : 0;
}

bool HasPlaces(Algorithm algorithm) {
  return algorithm == Algorithm::kBlockTopK || algorithm == Algorithm::kRandomK;
}

bool IsSparse(Algorithm algorithm) {
  return HasPlaces(algorithm) || algorithm == Algorithm::kThreshold ||
         algorithm == Algorithm::kTernary;
}

uint32_t PlacesOf(const CodecSpec& spec, size_t count) {
  if (spec.codec == CodecId::kRandomK)
    return static_cast<uint32_t>(RandomKPlaces(spec.level, count));
  const auto block = static_cast<size_t>(spec.level);
  return static_cast<uint32_t>((count + block - 1) / block);
}

bool HasOwnSize(Algorithm algorithm) {
  return IsSparse(algorithm) || algorithm == Algorithm::kNatural || algorithm == Algorithm::kSign ||
         algorithm == Algorithm::kOneBit || algorithm == Algorithm::kSignSgd;
}

bool NeedsScratch(Algorithm algorithm) {
  return HasOwnSize(algorithm) || algorithm == Algorithm::kPowerSgd;
}

}  // namespace sluice::compress::gpu
