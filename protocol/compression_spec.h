// SPDX-License-Identifier: Apache-2.0
// CompressionSpec: the codecs that the job file selects for the job's tensors, in both directions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/chunk_config.h"
#include "compress/codec_spec.h"
#include "protocol/job_defaults.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

enum class Direction { kUplink, kDownlink };

struct CompressionOverride {
  std::string tensors;  // A pattern with * and ?.
  std::optional<compress::CodecSpec> uplink;
  std::optional<compress::CodecSpec> downlink;
};

struct CompressionSpec {
  compress::CodecSpec uplink;
  compress::CodecSpec downlink;
  std::vector<CompressionOverride> overrides;  // The last matching override applies.
  // Tensors with fewer elements are not compressed beyond fp16 unless an override matches them.
  uint32_t min_elements = defaults::kCompressionMinElements;
  LayoutParameters layout;
  uint64_t seed = 0;  // The job's seed, for stochastic codecs.
};

// Returns the number of elements of a bundle in a job that does not set it. Large bundles reduce
// the fixed cost per message. But the last bundle's result travels while no other message does, and
// a worker may always have four bundles without a result. Bundles should therefore have at most a
// megabyte on the wire (bench/README.md has measurements).
uint32_t UsualBundleElements(const compress::CodecSpec& uplink,
                             const compress::CodecSpec& downlink);

// Returns the codec of a tensor. A buffer always gets `none`. For other tensors, the last matching
// override applies. Without a match, a tensor below min_elements gets dense fp16 if the direction's
// codec uses fewer bits than fp16. All other tensors get the direction's codec.
compress::CodecSpec SpecForTensor(const CompressionSpec& compression, const TensorInfo& tensor,
                                  Direction direction);

// Returns, for each tensor, whether the codec of either direction needs chunks of whole rows. Pass
// the result to BuildLayout.
std::vector<bool> WholeRows(const CompressionSpec& compression, const TensorTable& table);

// Returns the codec settings of a layout's chunks in one direction, by chunk id.
std::vector<compress::ChunkConfig> ChunkConfigs(const CompressionSpec& compression,
                                                const TensorTable& table, const Layout& layout,
                                                Direction direction);

}  // namespace sluice::protocol
