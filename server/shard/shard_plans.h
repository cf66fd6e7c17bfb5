// ShardPlans: the compression plans that a shard knows and codes by, and of shard 0 what makes
// them. The rules of when which holds are SyncShard's and AsyncShard's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/compressor.h"
#include "protocol/compression_plan.h"
#include "protocol/snapshot.h"
#include "server/control/measurements.h"
#include "server/control/plan_maker.h"
#include "server/shard/replica.h"
#include "server/shard/shard.h"

namespace sluice::server {

struct ShardPlans {
  protocol::PlanBook known{};                  // Of a job that makes plans.
  std::unique_ptr<PlanMaker> maker{};          // Of shard 0, likewise.
  uint64_t coded_by = 0;                       // The plan by which results are coded.
  std::optional<StepMeasurements> measured{};  // Since the last plan was made, or not.
};

// With the plan that the job begins with. INVALID_ARGUMENT: the shard has no bundle and would never
// hear of another, or the policy does not go with the tensors.
absl::StatusOr<ShardPlans> PrepareToPlan(const ShardOptions& options, size_t bundles);

// The snapshot's in place of those. INVALID_ARGUMENT: one makes plans and the other does not, or
// one of them cannot be.
absl::Status RestorePlans(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          ShardPlans* plans);

// What shard 0's maker has made after `step`: it is known from here on, or an Alarm says why it
// cannot be. Null: nothing.
void AddMadePlan(protocol::PlanBook::Plan plan, uint64_t step, ShardPlans* plans,
                 std::vector<ShardEffect>* effects);

// Results are coded by `plan` from here on, and the replica has its momentum where the job's
// optimizer is here. `base`: as the job file has it, by chunk. Null, or the one that they are coded
// by: nothing changes.
void TakeUpPlan(const protocol::PlanBook::Plan& plan, const ShardOptions& options,
                absl::Span<const compress::ChunkConfig> base, compress::Compressor* downlink,
                std::optional<Replica>* replica, ShardPlans* plans);

}  // namespace sluice::server
