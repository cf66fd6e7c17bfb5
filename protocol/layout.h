// SPDX-License-Identifier: Apache-2.0
// Layout: the division of a tensor table into chunks, bundles and fragments, and their placement on
// shards.
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
  // Number of parts of the trained tensors that are exchanged in turns: step s exchanges only
  // fragment (s - 1) mod fragments. With 1, every step exchanges all trained tensors.
  uint32_t fragments = 1;

  friend bool operator==(const LayoutParameters&, const LayoutParameters&) = default;
};
// This limit keeps every frame below kMaxFrameSize.
inline constexpr uint32_t kChunkElementsMax = 1 << 19;
inline constexpr uint32_t kBundleElementsMax = 1 << 21;
// A bundle is also complete when it holds this many chunks.
inline constexpr uint32_t kBundleChunksMax = 1024;
inline constexpr uint64_t kMaxChunks = 1 << 22;  // Limit over all tensors.
inline constexpr uint32_t kMaxShards = 256;
inline constexpr uint32_t kMaxFragments = 64;

// A piece of one tensor. Each chunk belongs to exactly one shard.
struct Chunk {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // Index of the first element, in the tensor's storage order.
  uint32_t count = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;  // Index of the bundle within its shard.
  // Number of rows if the chunk consists of whole rows of a matrix; otherwise 0.
  uint32_t rows = 0;
  uint32_t fragment = 0;  // 0 for buffers, which belong to no fragment.
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
  // The fragment of all chunks of the bundle; 0 for buffers, which belong to no fragment.
  uint32_t fragment = 0;
};

struct Layout {
  std::vector<Chunk> chunks;  // By id. Ids ascend with (tensor, offset).
  // [shard][bundle], in sending order: the trained tensors of each fragment from last to first,
  // then the buffers. A shard has at least one bundle.
  std::vector<std::vector<Bundle>> bundles;
  uint32_t fragments = 1;
};

// Returns whether step `step` exchanges a bundle of trained tensors. Workers skip a bundle in the
// steps that do not exchange it. Step 0, which distributes the initial parameters, exchanges all.
constexpr bool IsFragmentDue(uint32_t fragments, uint32_t fragment, uint64_t step) {
  return step == 0 || (step - 1) % fragments == fragment;
}

// Elements of a tensor that are next to each other in storage order.
struct TensorPart {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // Index of the first element.
  uint64_t count = 0;

  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

// Returns the parts of the trained tensors that step `step` exchanges, by tensor and offset. The
// trained tensors are those below `trained`.
std::vector<TensorPart> PartsDue(const Layout& layout, uint32_t trained, uint64_t step);

// Computes the layout.
//
// Placement: chunks are placed in order of size, the largest first (ties: the lowest id). Each
// chunk of a trained tensor joins the fragment with the fewest elements so far (ties: the lowest
// fragment). Then it goes to the shard with the fewest elements of this fragment so far (ties: the
// next shard, starting from shard f in fragment f). Buffers are placed on shards as fragment 0 is.
//
// Cutting: a tensor with several chunks is cut evenly, in multiples of 256 elements if
// chunk_elements allows it. `whole_rows` has one flag per tensor; if it is empty, no flag is set. A
// flagged tensor with two or more dimensions above 1 is treated as a matrix. The outermost of these
// dimensions in storage forms the rows, and the others together form the columns. The matrix is cut
// evenly between rows into as few chunks as kChunkElementsMax allows; chunk_elements does not
// apply. If a row is longer than kChunkElementsMax, the tensor is cut like an unflagged one.
// With several fragments, chunks have at most a tenth of a fragment's elements (or 256, if that is
// more), so that the largest fragment exceeds the mean by at most a tenth. This limit does not
// apply to flagged tensors.
//
// Fails with INVALID_ARGUMENT if there are no shards, a parameter is 0 or over its limit,
// ValidateTensorTable rejects the table, the table would need more than kMaxChunks chunks, there
// are more fragments than chunks of trained tensors, or `whole_rows` has the wrong size.
absl::StatusOr<Layout> BuildLayout(const TensorTable& table, uint32_t shards,
                                   const LayoutParameters& parameters,
                                   const std::vector<bool>& whole_rows = {});

}  // namespace sluice::protocol
