// ShardPlan: what a shard makes of its part of the layout before its first request: bundles, the
// codecs of both directions, parameters, and what of memory these take; and what a checkpoint says
// of them.
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
#include "server/shard/replica.h"
#include "server/shard/shard.h"

namespace sluice::server {

struct BundlePlan {
  std::vector<uint32_t> counts;  // Elements of each chunk.
  std::vector<uint32_t> locals;  // Each chunk's index among all chunks of the shard.
  std::vector<compress::Aggregator*> aggregators;  // One per chunk.
  uint64_t elements = 0;
  uint64_t version = 0;  // Of what was published last.
  bool buffers = false;  // Most steps have nothing for it.
};

struct ShardPlan {
  std::vector<BundlePlan> bundles;
  std::vector<std::unique_ptr<compress::Aggregator>> aggregators;  // Of all bundles' chunks.
  std::vector<compress::ChunkConfig> downlink;                     // Likewise.
  std::optional<Replica> replica;                                  // With a rule.
  uint64_t elements = 0;
  uint64_t trained = 0;  // Of those, not of buffers.
  // Sums, what the downlink or a log of it keeps, parameters, and what aggregators remember.
  uint64_t reserved_bytes = 0;
};

// INVALID_ARGUMENT: a rule that does not exist.
absl::StatusOr<ShardPlan> PlanShard(const ShardOptions& options);
// The rank whose parameters step 0 brings to all: the lowest that begins.
uint32_t ParameterRank(const ShardOptions& options);
// What the ranks may have in flight.
uint64_t WindowBytes(const ShardOptions& options);
// RESOURCE_EXHAUSTED: this and the windows do not fit in max_memory; how much would.
absl::Status CheckMemory(const ShardOptions& options, const ShardPlan& plan);

// What is wrong with the frames of a request, or with there being none. `repeats`: something came
// before, so that aggregators have moved on and only what the frames say of themselves can be
// checked.
absl::Status CheckPayload(const ShardOptions& options, const BundlePlan& plan,
                          const protocol::Exchange& exchange, bool repeats);

// The parts of a snapshot that every kind of shard has; step, versions and the rest are its own.
// They are copied by ShardOptions::run_copy.
std::shared_ptr<protocol::ShardSnapshot> SaveParts(
    const ShardOptions& options, const compress::Compressor& downlink,
    absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
    const std::optional<Replica>& replica);
// INVALID_ARGUMENT: it is of another run, shard, layout or compression, and how; then the parts
// mean nothing. To be told with CannotGoOn around it.
absl::Status RestoreParts(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          size_t bundles, compress::Compressor* downlink,
                          absl::Span<const std::unique_ptr<compress::Aggregator>> aggregators,
                          std::optional<Replica>* replica);
absl::Status CannotGoOn(const ShardOptions& options, const protocol::ShardSnapshot& snapshot,
                        const absl::Status& why);

}  // namespace sluice::server
