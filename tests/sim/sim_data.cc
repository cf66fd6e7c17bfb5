// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_data.h"

#include "compress/aggregator.h"
#include "server/shard/shard_parameters.h"

namespace sluice {

uint64_t TightMemory(const SurvivalOptions& options, const protocol::TensorTable& table,
                     const protocol::Layout& layout, uint32_t shard) {
  const std::vector<compress::ChunkConfig> uplinks =
      protocol::ChunkConfigs(options.compression, table, layout, protocol::Direction::kUplink);
  uint64_t bytes = options.ranks * options.window_bytes + 64;
  for (const protocol::Bundle& bundle : layout.bundles[shard]) {
    bytes += 8 * bundle.elements;
    for (const uint32_t chunk : bundle.chunks) {
      bytes += compress::MakeAggregator(uplinks[chunk], options.ranks)->state_bytes();
    }
    if (!options.rule.has_value()) continue;
    bytes += server::ShardParameters::BytesPerElement(*server::UpdateRule::Create(*options.rule)) *
             bundle.elements;
  }
  return bytes;
}

}  // namespace sluice
