// SPDX-License-Identifier: Apache-2.0
// PlanMaker: makes a job's compression plans from the choices of its control policy. Every server
// makes the first plan. Later, shard 0 makes a plan whenever the policy changes its choice. Pure;
// not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/control_spec.h"
#include "job/momentum.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/tensor_table.h"
#include "server/control/controller.h"
#include "server/control/schedule.h"

namespace sluice::server {

class PlanMaker {
 public:
  using Plan = protocol::PlanHistory::Plan;

  // `shard_share` is one shard's share of all elements. `lockstep` is true if ranks take steps
  // together. Returns null if the job makes no plans. Fails with INVALID_ARGUMENT if the policy
  // does not suit these tensors, for example because all of them are too small to be compressed.
  static absl::StatusOr<std::unique_ptr<PlanMaker>> Create(
      const job::ControlSpec& control, const protocol::CompressionSpec& compression,
      const protocol::TensorTable& table, uint32_t ranks, const job::MomentumRange& momentum = {},
      double shard_share = 1, bool lockstep = true);

  // Returns the plan of the job's first step, which depends only on the arguments of Create. Call
  // this once, or call Resume instead.
  Plan First();
  // Continues after plan `id` and ignores the steps before `step`.
  void Resume(uint64_t id, uint64_t step);
  // Returns the plan that is made in `step`, or null. The plan holds from step + kPlanDelay on.
  // Call this with steps in order. A schedule needs a call for every step, from the job's first.
  // `measured` holds the newest measurements, or null if nothing was measured since the previous
  // call. With null, a policy that uses measurements makes no plan.
  Plan Next(uint64_t step, const StepMeasurements* measured);
  // Continues the numbering after plan `id`. Another process of this shard made that plan, and some
  // party already knows it.
  void Took(uint64_t id) { controller_.Took(id); }

 private:
  PlanMaker(const job::ControlSpec& control, std::unique_ptr<Policy> policy,
            std::vector<ControlledTensor> tensors, BaseCoding base,
            const job::MomentumRange& momentum);
  Plan ToJob(const PolicyDecision& plan) const;
  std::vector<compress::CodecSpec> Codecs(const Coding& coding,
                                          const std::vector<compress::CodecSpec>& base) const;

  const bool measures_;
  const bool densities_;  // True if plans change only the densities of sparse codecs.
  const std::vector<ControlledTensor> tensors_;
  const BaseCoding base_;
  const job::MomentumRange momentum_;
  Controller controller_;
};

// Returns a plan of the parent job for the shards and workers of a rack. It has no entries, because
// plans never change the codecs inside a rack.
PlanMaker::Plan PlanInRack(const protocol::CompressionPlan& plan);

// Returns the first plan of a temporary PlanMaker, or null if the job makes no plans.
absl::StatusOr<PlanMaker::Plan> FirstPlan(const job::ControlSpec& control,
                                          const protocol::CompressionSpec& compression,
                                          const protocol::TensorTable& table, uint32_t ranks,
                                          const job::MomentumRange& momentum = {});

}  // namespace sluice::server
