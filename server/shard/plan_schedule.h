// PlanSchedule: the compression plans that a shard knows and uses, and shard 0's plan maker.
// SyncShard and AsyncShard decide when each plan takes effect.
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
#include "server/shard/shard.h"
#include "server/shard/shard_parameters.h"

namespace sluice::server {

struct PlanSchedule {
  protocol::PlanHistory known{};       // Empty if the job makes no plans.
  std::unique_ptr<PlanMaker> maker{};  // Set only on shard 0 of a job that makes plans.
  uint64_t coded_by = 0;               // Id of the plan that encodes the current results.
  // Newest measurements that the maker has not used yet.
  std::optional<StepMeasurements> measured{};
};

// Returns a schedule with the job's first plan. Fails with INVALID_ARGUMENT if the shard has no
// bundle, because it would never learn of another plan, or if the policy does not suit the tensors.
absl::StatusOr<PlanSchedule> PrepareToPlan(const ShardOptions& options, size_t bundles);

// Replaces the plans with those of the snapshot. Fails with INVALID_ARGUMENT if only one of the two
// jobs (the snapshot's and this one) makes plans, or if a plan is invalid.
absl::Status RestorePlans(const protocol::ShardSnapshot& snapshot, const ShardOptions& options,
                          PlanSchedule* plans);

// Adds `plan`, which shard 0's maker made after `step`, and appends PlanMade to the effects. If the
// plan contradicts a known plan, appends an Alarm instead. Does nothing if `plan` is null.
void AddMadePlan(protocol::PlanHistory::Plan plan, uint64_t step, PlanSchedule* plans,
                 std::vector<ShardEffect>* effects);

// Encodes results according to `plan` from now on. If the replica runs the job's optimizer, also
// applies the plan's momentum to the replica. `base` is the configuration from the job file, by
// chunk. Does nothing if `plan` is null or already in use.
void AdoptPlan(const protocol::PlanHistory::Plan& plan, const ShardOptions& options,
               absl::Span<const compress::ChunkConfig> base, compress::Compressor* downlink,
               std::optional<ShardParameters>* replica, PlanSchedule* plans);

}  // namespace sluice::server
