// Layout: the division of a tensor table into chunks and bundles, and their placement on shards.
// The layout depends only on (table, shards, parameters), so workers and shards compute the same
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/job_defaults.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

struct LayoutParameters {
  // Maximum number of elements in a chunk: 256 KiB of fp32.
  uint32_t chunk_elements = defaults::kCompressionChunkBytes / sizeof(float);
  // A bundle is complete when it holds at least this many elements: 4 MiB of fp32. The fixed cost
  // of a message equals the cost of encoding half a megabyte of fp32 (docs/performance.md).
  uint32_t bundle_elements = 1 << 20;

  friend bool operator==(const LayoutParameters&, const LayoutParameters&) = default;
};
// This limit keeps every frame below kMaxFrameSize.
inline constexpr uint32_t kChunkElementsMax = 1 << 19;
inline constexpr uint32_t kBundleElementsMax = 1 << 21;
// A bundle is also complete when it holds this many chunks.
inline constexpr uint32_t kBundleChunksMax = 1024;
inline constexpr uint64_t kMaxChunks = 1 << 22;  // Limit over all tensors.
inline constexpr uint32_t kMaxShards = 256;

// A piece of one tensor. Each chunk belongs to exactly one shard.
struct Chunk {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // Index of the first element, in the tensor's storage order.
  uint32_t count = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;  // Index of the bundle within its shard.
  // Number of rows if the chunk consists of whole rows of a matrix; otherwise 0.
  uint32_t rows = 0;
};

// Chunks of one shard that travel together. If there are fewer chunks than shards, each shard
// without a chunk has one bundle, which is empty and counts as a bundle of buffers. Workers skip it
// in every step, so the shard takes part and learns of checkpoints and plans as the others do.
struct Bundle {
  std::vector<uint32_t> chunks;  // Chunk ids, in sending order.
  uint64_t elements = 0;
  // True if no chunk of the bundle belongs to a trained tensor. Otherwise all belong to trained
  // tensors.
  bool buffers = false;
};

struct Layout {
  std::vector<Chunk> chunks;  // By id. Ids ascend with (tensor, offset).
  // [shard][bundle], in sending order: the trained tensors from last to first, then the buffers. A
  // shard has at least one bundle.
  std::vector<std::vector<Bundle>> bundles;
};

// Computes the layout.
//
// Placement: chunks are placed in order of size, the largest first (ties: the lowest id), each on
// the shard with the fewest elements so far (ties: the lowest shard).
//
// Cutting: a tensor with several chunks is cut evenly, in multiples of 256 elements if
// chunk_elements allows it. `whole_rows` has one flag per tensor; if it is empty, no flag is set. A
// flagged tensor with two or more dimensions above 1 is treated as a matrix. The outermost of these
// dimensions in storage forms the rows, and the others together form the columns. The matrix is cut
// evenly between rows into as few chunks as kChunkElementsMax allows; chunk_elements does not
// apply. If a row is longer than kChunkElementsMax, the tensor is cut like an unflagged one.
//
// Fails with INVALID_ARGUMENT if there are no shards, a parameter is 0 or over its limit,
// ValidateTensorTable rejects the table, the table would need more than kMaxChunks chunks, or
// `whole_rows` has the wrong size.
absl::StatusOr<Layout> BuildLayout(const TensorTable& table, uint32_t shards,
                                   const LayoutParameters& parameters,
                                   const std::vector<bool>& whole_rows = {});

}  // namespace sluice::protocol
