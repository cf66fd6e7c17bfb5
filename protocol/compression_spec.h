// CompressionSpec: how the tensors of a job are coded, in both directions, by its job file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/chunk_config.h"
#include "compress/codec_spec.h"
#include "protocol/layout.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

enum class Direction { kUplink, kDownlink };

struct CompressionOverride {
  std::string tensors;  // Pattern with * and ?.
  std::optional<compress::CodecSpec> uplink;
  std::optional<compress::CodecSpec> downlink;
};

struct CompressionSpec {
  compress::CodecSpec uplink;
  compress::CodecSpec downlink;
  std::vector<CompressionOverride> overrides;  // The last match wins.
  // Smaller tensors are not compressed beyond fp16 unless an override names them.
  uint32_t min_elements = 1024;
  LayoutParameters layout;
  uint64_t seed = 0;  // The job's; of stochastic codecs.
};

// The codec of a tensor: of a buffer `none`, whatever `compression` says; else the last override
// that matches, else dense fp16 below min_elements where the direction's codec has fewer bits than
// that, else the direction's codec.
compress::CodecSpec SpecForTensor(const CompressionSpec& compression, const TensorInfo& tensor,
                                  Direction direction);

// By tensor: true if a codec of either direction wants its chunks to be whole rows; for
// BuildLayout.
std::vector<bool> WholeRows(const CompressionSpec& compression, const TensorTable& table);

// How the chunks of a layout are coded in one direction, by chunk id.
std::vector<compress::ChunkConfig> ChunkConfigs(const CompressionSpec& compression,
                                                const TensorTable& table, const Layout& layout,
                                                Direction direction);

}  // namespace sluice::protocol
