// SPDX-License-Identifier: Apache-2.0
// PlanSchedule: the compression plans that a shard knows and uses. On shard 0 it also makes them.
//
// In lockstep modes, shard 0 makes a plan when it closes its first bundle of a step. The results of
// that bundle announce the plan, which takes effect two steps later. In the step before the plan
// takes effect, workers pass the plan to the other shards with their first bundles. A shard needs
// these bundles from all ranks to close the step, so every shard knows a plan before it takes
// effect.
//
// In the other modes, ranks need not change plans in the same step, because every contribution is a
// separate update, frames describe their own coding, and publications are the same for all ranks.
// Each party uses a plan as soon as it receives the plan. Shard 0 makes plans as the slowest rank
// advances. With its results, it sends the newest plan to ranks that use another one. Workers pass
// the plan to the other shards. Rules: docs/protocol.md, "Plans". Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "compress/compressor.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "server/control/measurements.h"
#include "server/control/plan_maker.h"
#include "server/shard/shard.h"
#include "server/shard/shard_parameters.h"

namespace sluice::server {

class PlanSchedule {
 public:
  using Plan = protocol::PlanHistory::Plan;

  // The state of the shard that a request meets.
  struct Position {
    uint64_t open_step = 0;
    bool is_closed = false;  // The request's bundle of its step is closed.
  };

  // Plans change how `downlink` encodes results. If the replica runs the job's optimizer, they also
  // change its momentum. `base` is the configuration from the job file, by chunk. All pointers must
  // outlive this object.
  PlanSchedule(const ShardOptions* options, std::vector<compress::ChunkConfig> base,
               compress::Compressor* downlink, std::optional<ShardParameters>* replica);

  // Adds the job's first plan, or the parent job's. Call this once, before all other methods. Fails
  // with INVALID_ARGUMENT if the shard has no bundle, because it would never learn of another plan,
  // or if the policy does not suit the tensors.
  absl::Status Prepare();
  // Replaces the plans with those of the snapshot and begins the snapshot's step. Fails with
  // INVALID_ARGUMENT if only one of the two jobs (the snapshot's and this one) makes plans, or if a
  // plan is invalid.
  absl::Status Restore(const protocol::ShardSnapshot& snapshot);

  // Checks the plans in a request. Fails with INVALID_ARGUMENT, or with ABORTED if the job has to
  // roll back: the process of shard 0 that made this shard's plan is lost, and so are all workers
  // that knew the plan.
  absl::Status Check(const protocol::ExchangeRequest& exchange, const Position& at) const;
  // Records the plans in a request that passed Check.
  void Record(const protocol::ExchangeRequest& exchange, const Position& at);

  // True on shard 0 of a job that makes plans.
  bool makes_plans() const { return maker_ != nullptr; }
  // Makes the plan of `step`, if there is one, and appends PlanMade. If the plan contradicts plans
  // that workers have reported, appends an Alarm instead. Call this with steps in order.
  void Make(uint64_t step, std::vector<ShardEffect>* out);
  // Gives the maker the newest measurements. The next plan uses them.
  void Measured(const StepMeasurements& measured) {
    if (makes_plans()) measured_ = measured;
  }
  // Adds a plan that the parent job announced, and appends PlanMade. Ignores null, and plans that
  // are already known.
  void Follow(const Plan& plan, std::vector<ShardEffect>* out);
  // Encodes results with the plan that is in force in `step` from now on.
  void Begin(uint64_t step);

  // Returns the plan in force in `step`; null if the codecs of the job file apply.
  Plan InForce(uint64_t step) const { return lockstep_ ? known_.At(step) : known_.newest(); }
  // Returns the plan that the result of this bundle announces to a rank that uses plan `plan_id`.
  Plan AnnouncedIn(uint64_t step, uint32_t bundle, uint64_t plan_id) const;
  // Id of the plan that encodes the current results.
  uint64_t coded_by() const { return coded_by_; }
  std::vector<protocol::CompressionPlan> Copies() const { return known_.Copies(); }

 private:
  absl::Status CheckLockstep(const protocol::ExchangeRequest& exchange, const Position& at) const;
  absl::Status CheckOwnPace(const protocol::ExchangeRequest& exchange) const;
  absl::Status CheckBrought(const protocol::ExchangeRequest& exchange) const;
  absl::Status CheckReported(const protocol::ExchangeRequest& exchange, const Position& at) const;
  absl::Status CheckKnown(const protocol::ExchangeRequest& exchange, uint64_t open_step) const;
  Plan Next(uint64_t step);
  void LearnMade(Plan plan, uint64_t step, std::vector<ShardEffect>* out);
  void Use(const Plan& plan);
  void Adopt(Plan plan);

  const ShardOptions& options_;
  const bool lockstep_;
  const std::vector<compress::ChunkConfig> base_;
  compress::Compressor* const downlink_;
  std::optional<ShardParameters>* const replica_;
  protocol::PlanHistory known_;  // Empty if the job makes no plans.
  std::unique_ptr<PlanMaker> maker_;
  // Newest measurements that the maker has not used yet.
  std::optional<StepMeasurements> measured_;
  uint64_t coded_by_ = 0;
  // The plans that an earlier process announced with its results, by the step of the result.
  // Workers that received these results report the plans. Null means that the result announced no
  // plan. Contains at most the open step and the next one.
  std::map<uint64_t, Plan> reported_;
};

}  // namespace sluice::server
