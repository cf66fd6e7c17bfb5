// SPDX-License-Identifier: Apache-2.0
#include "server/control/plan_bytes.h"

#include "server/control/codec_rate_distortion.h"

namespace sluice::server {
namespace {

// Returns a chunk for each whole tensor, coded as in the job file.
std::vector<compress::ChunkConfig> Whole(const protocol::CompressionSpec& compression,
                                         const protocol::TensorTable& table,
                                         protocol::Direction direction) {
  std::vector<compress::ChunkConfig> tensors;
  for (uint32_t tensor = 0; tensor < protocol::TrainedTensors(table); ++tensor) {
    compress::ChunkConfig whole;
    whole.tensor = tensor;
    whole.spec = protocol::SpecForTensor(compression, table[tensor], direction);
    tensors.push_back(whole);
  }
  return tensors;
}

std::optional<double> BytesOf(const std::vector<compress::CodecSpec>& codecs,
                              const protocol::TensorTable& table) {
  double bits = 0;
  for (uint32_t tensor = 0; tensor < codecs.size(); ++tensor) {
    const absl::StatusOr<CodecRateDistortion> price = PriceOf(codecs[tensor]);
    if (!price.ok()) return std::nullopt;
    bits += price->bits * static_cast<double>(table[tensor].elements());
  }
  return bits / 8;
}

}  // namespace

std::optional<PlanBytes> BytesUnder(const protocol::CompressionPlan& plan,
                                    const protocol::CompressionSpec& compression,
                                    const protocol::TensorTable& table, uint32_t ranks) {
  PlanBytes bytes;
  const std::vector<compress::ChunkConfig> up =
      Whole(compression, table, protocol::Direction::kUplink);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto of_rank =
        BytesOf(protocol::SpecsUnder(&plan, protocol::Direction::kUplink, rank, up), table);
    if (!of_rank.has_value()) return std::nullopt;
    bytes.up.push_back(*of_rank);
  }
  const std::vector<compress::ChunkConfig> down =
      Whole(compression, table, protocol::Direction::kDownlink);
  const auto results =
      BytesOf(protocol::SpecsUnder(&plan, protocol::Direction::kDownlink, 0, down), table);
  if (!results.has_value()) return std::nullopt;
  bytes.down = *results;
  return bytes;
}

}  // namespace sluice::server
