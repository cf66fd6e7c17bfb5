// SPDX-License-Identifier: Apache-2.0
// Redistribution: builds a shard's state from a checkpoint that another number of shards wrote.
// Chunks are the same for every number of shards, and so is the state of each chunk. Only their
// places on shards and in bundles differ. Pure; not thread-safe.
//
// A shard continues bit for bit as if the job had always had this number of shards, with two
// exceptions. First, the thresholds of sparse codecs on the downlink belong to a whole shard, so
// they are reset. Second, in modes whose ranks do not wait for each other, former bundles may be
// at different steps of a rank. A new bundle is at the latest of these steps, so that chunks which
// were behind lose the rank's contributions to the steps between.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec_spec.h"
#include "compress/compressor.h"
#include "compress/saved_state.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"

namespace sluice::server {

class Redistribution {
 public:
  struct Options {
    uint32_t shard = 0;
    uint32_t former_shards = 0;  // Number of shards that wrote the checkpoint.
    uint32_t shards = 0;
    protocol::TensorTable table{};
    protocol::CompressionSpec compression{};
  };
  // Fails with INVALID_ARGUMENT if the table cannot be divided among that many shards.
  static absl::StatusOr<Redistribution> Create(Options options);

  // Returns the former shards whose states this shard needs, in ascending order. Former shard 0 is
  // always one of them, because it knows all plans.
  const std::vector<uint32_t>& sources() const { return sources_; }
  // Takes what this shard needs from the state of a former shard. Sources may be added in any
  // order. Fails with INVALID_ARGUMENT if the state does not fit the table or the states added
  // before; the message names the difference.
  absl::Status Add(protocol::ShardSnapshot former);
  // Returns the state of this shard. Call this once, after all sources have been added. Fails with
  // FAILED_PRECONDITION if one is missing.
  absl::StatusOr<protocol::ShardSnapshot> Take();

 private:
  // The state of one chunk of this shard.
  struct ChunkState {
    compress::SavedCompressor::Chunk downlink;
    compress::SavedState aggregator;
    compress::SavedState replica;
    uint64_t version = 0;
    std::vector<uint64_t> clocks;  // By rank.
  };

  Redistribution(Options options, protocol::Layout before, protocol::Layout after);

  absl::Status CheckFits(const protocol::ShardSnapshot& former) const;
  void AdoptPlans(std::vector<protocol::CompressionPlan> plans);
  std::vector<compress::CodecSpec> NewestCodecs() const;  // By chunk id.

  Options options_;
  protocol::Layout before_;
  protocol::Layout after_;
  std::vector<uint32_t> sources_;
  std::vector<bool> added_;                        // By former shard.
  std::vector<std::optional<ChunkState>> chunks_;  // By chunk id; unset for other shards' chunks.
  protocol::ShardSnapshot head_;                   // What all states have in common, and the plans.
  bool has_head_ = false;
  bool has_replica_ = false;
  size_t ranks_ = 0;  // Number of clocks of each bundle.
};

}  // namespace sluice::server
