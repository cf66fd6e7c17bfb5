#include "server/control/plan_bytes.h"

#include "server/control/codec_price.h"

namespace sluice {
namespace {

// Each tensor as one chunk, coded as the job file says.
std::vector<ChunkConfig> Whole(const CompressionSpec& compression, const TensorTable& table,
                               Direction direction) {
  std::vector<ChunkConfig> tensors;
  for (uint32_t tensor = 0; tensor < TrainedTensors(table); ++tensor) {
    ChunkConfig whole;
    whole.tensor = tensor;
    whole.spec = SpecForTensor(compression, table[tensor], direction);
    tensors.push_back(whole);
  }
  return tensors;
}

std::optional<double> BytesOf(const std::vector<CodecSpec>& codecs, const TensorTable& table) {
  double bits = 0;
  for (uint32_t tensor = 0; tensor < codecs.size(); ++tensor) {
    const absl::StatusOr<CodecPrice> price = PriceOf(codecs[tensor]);
    if (!price.ok()) return std::nullopt;
    bits += price->bits * static_cast<double>(table[tensor].elements());
  }
  return bits / 8;
}

}  // namespace

std::optional<PlanBytes> BytesUnder(const CompressionPlan& plan, const CompressionSpec& compression,
                                    const TensorTable& table, uint32_t ranks) {
  PlanBytes bytes;
  const std::vector<ChunkConfig> up = Whole(compression, table, Direction::kUplink);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto of_rank = BytesOf(SpecsUnder(&plan, Direction::kUplink, rank, up), table);
    if (!of_rank.has_value()) return std::nullopt;
    bytes.up.push_back(*of_rank);
  }
  const std::vector<ChunkConfig> down = Whole(compression, table, Direction::kDownlink);
  const auto results = BytesOf(SpecsUnder(&plan, Direction::kDownlink, 0, down), table);
  if (!results.has_value()) return std::nullopt;
  bytes.down = *results;
  return bytes;
}

}  // namespace sluice
