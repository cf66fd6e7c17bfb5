// SPDX-License-Identifier: Apache-2.0
#include "planning/estimate/job_scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "job/modes.h"

namespace sluice::planning {
namespace {

// Returns the optimizer's state on the shards, in bytes per parameter.
double OptimizerStateBytes(const job::OptimizerSpec& optimizer) {
  if (optimizer.name == "sgd") return optimizer.momentum > 0 ? 4 : 0;
  if (optimizer.name == "rmsprop") return optimizer.momentum > 0 ? 8 : 4;
  return 8;
}

}  // namespace

absl::Status SetFromJob(const job::JobSpec& job, Scenario* scenario) {
  if (!job.exchange.in_lockstep()) {
    return absl::FailedPreconditionError(
        absl::StrCat("mode ", NameOf(job.exchange.mode),
                     " cannot be estimated: the model covers modes in which all workers take each "
                     "step together; estimate the job with --set mode=sync for a lower bound of "
                     "its pace"));
  }
  const std::vector<uint32_t>& racks = job.relays.workers;
  if (std::adjacent_find(racks.begin(), racks.end(), std::not_equal_to<>()) != racks.end()) {
    return absl::InvalidArgumentError(
        "relays.workers: the model covers only racks of equal size; give each the size of the "
        "largest one");
  }
  scenario->workers = job.workers;
  scenario->shards = job.shards;
  scenario->up = job.exchange.compression.uplink;
  scenario->down = job.exchange.compression.downlink;
  if (job.relays.enabled()) {
    scenario->sites = static_cast<uint32_t>(racks.size());
    scenario->relays = true;
    scenario->relay_up = job.relays.uplink;
  }
  scenario->local = {};
  if (job::StepsPerExchange(job) > 1) {
    scenario->local = {
        .steps = static_cast<uint32_t>(std::min<uint64_t>(job::StepsPerExchange(job), 1'000'000)),
        .fragments = job.exchange.compression.layout.fragments,
        .delay = static_cast<uint32_t>(job.local.fragment_delay)};
  }
  const std::optional<job::OptimizerSpec> on_shards = job::ShardOptimizer(job);
  scenario->optimizer_on_shards = on_shards.has_value();
  if (on_shards.has_value()) scenario->optimizer_state_bytes = OptimizerStateBytes(*on_shards);
  scenario->checkpoints = job.checkpoint.enabled();
  scenario->replay_limit_bytes = static_cast<double>(job.checkpoint.replay_limit);
  scenario->quorum = job.exchange.quorum > 0;
  return absl::OkStatus();
}

}  // namespace sluice::planning
