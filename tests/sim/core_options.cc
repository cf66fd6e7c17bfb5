// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/core_options.h"

#include "base/check.h"
#include "server/control/plan_maker.h"
#include "tests/sim/sim_world.h"

namespace sluice {

job::ExchangeSpec ExchangeOf(const SurvivalOptions& job) {
  return {.mode = job.mode,
          .staleness = job.staleness,
          .staleness_aware_lr = job.staleness_aware_lr,
          .membership = job.elastic ? job::Membership::kElastic : job::Membership::kFixed,
          .quorum = job.quorum,
          .straggler_timeout = Of(job.grace_us),
          .compression = job.compression,
          .control = job.control,
          .merge = job.merge};
}

protocol::PlanHistory::Plan FirstPlanOf(const SurvivalOptions& job,
                                        const protocol::TensorTable& table) {
  const auto& parent = job.parent_plans;
  const absl::StatusOr<server::PlanMaker::Plan> first =
      server::FirstPlan(job.control, parent.has_value() ? parent->compression : job.compression,
                        table, parent.has_value() ? parent->relays : job.ranks);
  Check(first.ok(), "the schedule is valid");
  return *first;
}

server::ShardOptions ShardOptionsOf(const SurvivalOptions& job, const protocol::StartShard& start) {
  server::ShardOptions options;
  options.table = start.table;
  options.exchange = ExchangeOf(job);
  if (job.bug == SurvivalBug::kBoundTooFar) ++options.exchange.staleness;
  if (job.rack_of == 0) options.rule = job.rule;
  options.weights = job.weights;
  options.forwards_sums = job.rack_of > 0;
  if (job.parent_plans.has_value()) options.parent_plan = FirstPlanOf(job, start.table);
  options.job_uid = start.job_uid;
  options.term = start.term;
  options.generation = start.generation;
  options.incarnations = start.incarnations;
  options.first_step = start.first_step;
  options.parameters_agree = start.parameters_agree;
  options.window_bytes = start.window_bytes;
  options.busy_retry_ms = kRetryMs;
  options.replay_bytes = job.checkpoint_interval > 0 ? job.replay_limit : 0;
  options.replay = start.replay;
  options.unanswered_bytes = start.window_bytes / 4;
  options.restored_ranks = start.restore_world_size;
  return options;
}

worker::PipelineOptions PipelineOptionsOf(const SurvivalOptions& job,
                                          const protocol::JoinGrant& grant) {
  worker::PipelineOptions options;
  options.world_size = grant.world_size;
  options.first_step = grant.first_step;
  options.parameters_agree = grant.parameters_agree;
  options.exchange = ExchangeOf(job);
  if (job.bug == SurvivalBug::kQuorumNotKnown) options.exchange.quorum = 0;
  options.window_bytes = grant.window_bytes;
  options.late_joiner = grant.late_joiner && job.bug != SurvivalBug::kLateJoinerWorksAtOnce;
  options.replay_bytes = job.checkpoint_interval > 0 && !job.elastic ? job.replay_limit : 0;
  const bool late = grant.late_joiner && job.bug == SurvivalBug::kLateJoinerLeavesOutOne;
  if (late) ++options.first_step;
  options.rack_of = job.rack_of;
  return options;
}

protocol::ExchangeRequest SkipOf(const server::ShardOptions& options, uint32_t rank,
                                 uint64_t incarnation, uint64_t step, uint32_t bundle) {
  protocol::ExchangeRequest skip;
  skip.sender = {.job_uid = options.job_uid,
                 .term = options.term,
                 .rank = rank,
                 .incarnation = incarnation,
                 .generation = options.generation,
                 .server_incarnation = 0};
  skip.step = step;
  skip.bundle = bundle;
  skip.skip = true;
  return skip;
}

}  // namespace sluice
