// PlanMaker: makes a job's compression plans of what its control policy chooses: shard 0 in every
// step, and everybody on the servers the first. Pure; not thread-safe.
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
  using Plan = protocol::PlanBook::Plan;

  // `shard_share`: of all elements, a shard's. `lockstep`: ranks take steps together. Null: the job
  // makes no plans. INVALID_ARGUMENT: the policy does not go with these tensors, e.g. because all
  // of them are too small to be compressed.
  static absl::StatusOr<std::unique_ptr<PlanMaker>> Create(
      const job::ControlSpec& control, const protocol::CompressionSpec& compression,
      const protocol::TensorTable& table, uint32_t ranks, const job::MomentumRange& momentum = {},
      double shard_share = 1, bool lockstep = true);

  // The plan that the job's first step begins with: a function of what Create was given. Instead of
  // Resume, once.
  Plan First();
  // Goes on after plan `id`, with the plan that is made in `step`.
  void Resume(uint64_t id, uint64_t step);
  // The plan that is made in `step`; null: none. It holds from step + kPlanDelay on. Steps in
  // order; of a schedule each once, from the job's first. `measured`: what was measured last; null:
  // nothing since the call before, then a policy that goes by it makes no plan.
  Plan Next(uint64_t step, const StepMeasurements* measured);
  // Another process of this shard made the plan and somebody knows of it: numbers go on from there.
  void Took(uint64_t id) { controller_.Took(id); }

 private:
  PlanMaker(const job::ControlSpec& control, std::unique_ptr<Policy> policy,
            std::vector<ControlledTensor> tensors, BaseCoding base,
            const job::MomentumRange& momentum);
  Plan ToJob(const sluice::server::Plan& plan) const;
  std::vector<compress::CodecSpec> Codecs(const Coding& coding,
                                          const std::vector<compress::CodecSpec>& base) const;

  const bool measures_;
  const bool densities_;  // A plan sets densities of what is sparse, and no codecs.
  const std::vector<ControlledTensor> tensors_;
  const BaseCoding base_;
  const job::MomentumRange momentum_;
  Controller controller_;
};

// PlanMaker's, of its own; null: the job makes none.
absl::StatusOr<PlanMaker::Plan> FirstPlan(const job::ControlSpec& control,
                                          const protocol::CompressionSpec& compression,
                                          const protocol::TensorTable& table, uint32_t ranks,
                                          const job::MomentumRange& momentum = {});

}  // namespace sluice::server
