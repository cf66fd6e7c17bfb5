// SPDX-License-Identifier: Apache-2.0
#include "compress/gpu/coding.h"

#include "compress/codec_table.h"
#include "compress/codecs/randomk.h"
#include "compress/coding/position_coding.h"

namespace sluice::compress::gpu {

std::optional<Coding> CodingOf(const CodecSpec& spec, size_t count, uint32_t rows) {
  const auto choose = FindCodec(spec.codec).facts.gpu.value();
  if (choose == nullptr) return std::nullopt;
  Coding coding;
  coding.stochastic = spec.has(kStochastic);
  coding.index = IndexModeOf(spec);
  coding.values = static_cast<uint8_t>(spec.values);
  choose(spec, count, rows, &coding);
  return coding;
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
