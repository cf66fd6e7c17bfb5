// SPDX-License-Identifier: Apache-2.0
// ByteModel: the bytes on the wire and the processor times of each bundle of a job, without its
// values. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "planning/simulation/machine_costs.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::planning {

// The cost of a bundle's frames in one direction.
struct BundleCost {
  uint64_t bytes = 0;    // The frames have this size in a message, with headers.
  double encode_ns = 0;  // To encode all of them once.
  double add_ns = 0;     // To decode and add all of them once.
};
// By shard and bundle.
using BundleCosts = std::vector<std::vector<BundleCost>>;

class ByteModel {
 public:
  ByteModel(const protocol::CompressionSpec& compression, const protocol::TensorTable& table,
            const protocol::Layout& layout, const MachineCosts& costs);

  // Returns the costs of the frames that `rank` (uplink) or the shards (downlink) send under the
  // plan. With null, the job file's codecs apply. A frame's size is the expected one of the codec's
  // price, or the largest one for a codec without a price.
  BundleCosts CostsUnder(const protocol::CompressionPlan* plan, protocol::Direction direction,
                         uint32_t rank) const;
  // Returns the costs of exact parameters.
  BundleCosts OfParameters() const;
  // The codecs of the uplink without a price, each once. Their sizes and times are rough.
  std::vector<compress::CodecSpec> Unpriced() const;

 private:
  BundleCosts Sum(absl::Span<const compress::CodecSpec> specs, protocol::Direction direction) const;
  BundleCost OfChunk(const compress::CodecSpec& spec, const protocol::Chunk& chunk) const;

  const protocol::Layout layout_;
  const MachineCosts costs_;
  const std::vector<compress::ChunkConfig> uplink_;    // By chunk.
  const std::vector<compress::ChunkConfig> downlink_;  // By chunk.
};

// Returns the bytes of a request or a reply as gRPC sends it: the frames, the fields of the
// message, and the framing of gRPC and HTTP/2.
uint64_t MessageBytes(const protocol::ExchangeRequest& exchange, uint64_t frame_bytes);
uint64_t MessageBytes(const protocol::ExchangeReply& answer, uint64_t frame_bytes);

}  // namespace sluice::planning
