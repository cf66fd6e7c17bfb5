// Layout: how a tensor table is cut into chunks and bundles and placed on shards.
// A function of (table, shards, parameters) alone, so that workers and shards compute the same one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"

namespace sluice::protocol {

struct LayoutParameters {
  // Of the largest chunk: 256 KiB of fp32.
  uint32_t chunk_elements = 65536;
  // A bundle is closed when it holds at least this many: 4 MiB of fp32. What a message costs beside
  // its bytes is as much as to encode half a megabyte of fp32 (docs/performance.md).
  uint32_t bundle_elements = 1 << 20;

  friend bool operator==(const LayoutParameters&, const LayoutParameters&) = default;
};
inline constexpr uint32_t kChunkElementsMax = 1 << 19;  // So that no frame passes kMaxFrameSize.
inline constexpr uint32_t kBundleElementsMax = 1 << 21;
inline constexpr uint32_t kBundleChunksMax = 1024;  // A bundle is closed when it holds so many.
inline constexpr uint64_t kMaxChunks = 1 << 22;     // Of all tensors together.
inline constexpr uint32_t kMaxShards = 256;

// Piece of one tensor; lives on exactly one shard.
struct Chunk {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // First element, in the tensor's storage order.
  uint32_t count = 0;
  uint32_t shard = 0;
  uint32_t bundle = 0;  // Of its shard.
  uint32_t rows = 0;    // If it is whole rows of a matrix: how many; else 0.
};

// Chunks of one shard that travel together.
struct Bundle {
  std::vector<uint32_t> chunks;  // Ids, in sending order.
  uint64_t elements = 0;
  bool buffers = false;  // All its chunks are of buffers; else none is.
};

struct Layout {
  std::vector<Chunk> chunks;  // By id; ids go up with (tensor, offset).
  std::vector<std::vector<Bundle>>
      bundles;  // [shard][bundle]; in sending order: trained tensors, last first, then buffers.
  // May be empty for a shard if there are fewer chunks than shards.
};

// Chunks go to the shard with the fewest elements so far (ties: the lowest), largest chunks first
// (ties: lowest id). A tensor of several chunks is cut evenly, in multiples of 256 elements where
// chunk_elements allows it.
// Tensors that `whole_rows` has true for (by tensor; empty: none) and that have two or more
// dimensions above 1 are matrices: of these dimensions the outermost in storage is the rows, the
// others together are the columns. They are cut between rows, evenly, into as few chunks as
// kChunkElementsMax allows, whatever chunk_elements is. One whose rows are longer than that is cut
// as any other.
// INVALID_ARGUMENT: no shards, a parameter that is 0 or over its limit, a table that
// ValidateTensorTable refuses or that would take more than kMaxChunks, `whole_rows` of another
// size.
absl::StatusOr<Layout> BuildLayout(const TensorTable& table, uint32_t shards,
                                   const LayoutParameters& parameters,
                                   const std::vector<bool>& whole_rows = {});

}  // namespace sluice::protocol
