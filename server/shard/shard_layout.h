// SPDX-License-Identifier: Apache-2.0
// ShardLayout: the data that a shard derives from its part of the layout before the first request:
// bundles, codecs of both directions, parameters, and their memory. Also saves these to checkpoints
// and restores them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "server/shard/shard.h"
#include "server/shard/shard_parameters.h"

namespace sluice::server {

struct BundleLayout {
  std::vector<uint32_t> counts;                    // Elements of each chunk.
  std::vector<uint32_t> locals;                    // Index of each chunk in the shard.
  std::vector<compress::Aggregator*> aggregators;  // By chunk.
  uint64_t elements = 0;
  uint64_t version = 0;    // Version of the last publication.
  bool buffers = false;    // The bundle holds buffers, which most steps do not exchange.
  uint32_t fragment = 0;   // The fragment of a bundle of trained tensors.
  uint32_t fragments = 1;  // Of the whole layout.

  // Returns whether a step exchanges the bundle's trained tensors.
  bool Exchanges(uint64_t step) const {
    return !buffers && protocol::IsFragmentDue(fragments, fragment, step);
  }
  // Returns the first element of each chunk in the bundle.
  std::vector<size_t> Begins() const;
};

struct ShardLayout {
  std::vector<BundleLayout> bundles;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators;  // For all bundles, by chunk.
  std::vector<compress::ChunkConfig> downlink;                     // For all bundles, by chunk.
  std::optional<ShardParameters> replica;  // Set if the shard has an update rule.
  uint64_t elements = 0;
  uint64_t trained = 0;  // Number of elements without buffers.
  // Bytes of sums, of the downlink's residuals or a log of publications, of parameters, and of the
  // aggregators' state.
  uint64_t reserved_bytes = 0;
};

// Fails with INVALID_ARGUMENT if the update rule is unknown.
absl::StatusOr<ShardLayout> PlanShard(const ShardOptions& options);
// Returns the rank whose parameters step 0 distributes. This is the lowest rank that is present at
// the start.
uint32_t ParameterRank(const ShardOptions& options);
// Returns the step that follows `step`. Step 0 exchanges the parameters.
uint64_t StepAfter(const ShardOptions& options, uint64_t step);
// Returns the total number of bytes that all ranks may have in flight.
uint64_t WindowBytes(const ShardOptions& options);
// Fails with RESOURCE_EXHAUSTED if the layout and the windows do not fit in max_memory. The message
// contains the number of bytes that they need.
absl::Status CheckMemory(const ShardOptions& options, const ShardLayout& plan);

// Fails with INVALID_ARGUMENT if the frames of a request are invalid, missing or unexpected.
// `repeats` means that the request repeats an earlier one. The aggregators have then moved on, so
// only the frames' own headers can be checked.
absl::Status CheckPayload(const ShardOptions& options, const BundleLayout& plan,
                          const protocol::ExchangeRequest& exchange, bool repeats);

// Returns a snapshot of the parts that every kind of shard has. The caller adds the step, the
// versions and the rest. ShardOptions::run_copy runs the copy.
std::shared_ptr<protocol::ShardSnapshot> SaveParts(
    const ShardOptions& options, const compress::Compressor& downlink,
    absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
    const std::optional<ShardParameters>& replica);
// Fails with INVALID_ARGUMENT if the snapshot belongs to another run, shard, layout or compression.
// The parts are then in an unspecified state, and the caller must report the error through
// CannotGoOn.
absl::Status RestoreParts(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          size_t bundles, compress::Compressor* downlink,
                          absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
                          std::optional<ShardParameters>* replica);
absl::Status CannotGoOn(const ShardOptions& options, const protocol::ShardSnapshot& snapshot,
                        const absl::Status& why);

}  // namespace sluice::server
