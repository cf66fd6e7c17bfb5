// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/term_messages.h"

#include <utility>

#include "server/control/plan_maker.h"

namespace sluice::server {

protocol::JoinGrant TermMessages::Grant(const Member& member, bool from_newest) const {
  const uint64_t newest = checkpoints_.tracker().newest();
  const uint64_t restore_step = from_newest ? newest : term_.restore_step;
  protocol::JoinGrant grant{.job_uid = options_.job_uid,
                            .term = term_.number,
                            .rank = member.join.rank,
                            .incarnation = member.incarnation,
                            .generation = term_.generation,
                            .world_size = options_.world_size,
                            .first_step = restore_step + 1,
                            .layout = options_.exchange.compression.layout,
                            .window_bytes = options_.server.window_bytes,
                            .parameters_agree = term_.parameters_agree || restore_step > 0,
                            .restore_step = restore_step,
                            .lease = options_.server.lease_timeout,
                            .heartbeat = options_.server.heartbeat_interval,
                            .server_incarnation = incarnation_,
                            .late_joiner = member.late_joiner};
  if (restore_step == term_.restore_step) grant.members = roster_.began_with();
  grant.shards = fleet_.Places();
  checkpoints_.AddRestoreParts(&grant);
  if (restore_step > 0) return grant;  // The checkpoint contains its plans.
  grant.plan = PlanOfFirstStep();
  return grant;
}

// Returns null if the job makes no plans. If there is an error, no shard has started.
std::shared_ptr<const protocol::CompressionPlan> TermMessages::PlanOfFirstStep() const {
  const bool of_parent = options_.parent_plans.has_value();
  const absl::StatusOr<PlanMaker::Plan> plan =
      FirstPlan(options_.exchange.control,
                of_parent ? options_.parent_plans->compression : options_.exchange.compression,
                roster_.table(), of_parent ? options_.parent_plans->relays : options_.world_size,
                options_.momentum);
  if (!plan.ok() || *plan == nullptr) return nullptr;
  return of_parent ? PlanInRack(**plan) : *plan;
}

protocol::StartShard TermMessages::Start(const ShardSeat& seat) const {
  const bool replays = seat.replays();
  const uint64_t restore_step = replays ? checkpoints_.tracker().newest() : term_.restore_step;
  protocol::StartShard start{.job_uid = options_.job_uid,
                             .term = term_.number,
                             .first_step = restore_step + 1,
                             .table = roster_.table(),
                             .layout = options_.exchange.compression.layout,
                             .generation = term_.generation,
                             .window_bytes = options_.server.window_bytes,
                             .coordinator_incarnation = incarnation_,
                             .parameters_agree = term_.parameters_agree || restore_step > 0,
                             .restore_step = restore_step,
                             .replay = replays};
  start.incarnations = roster_.Incarnations();
  checkpoints_.AddRestorePart(seat.arrival.shard, &start);
  return start;
}

protocol::RunRecord TermMessages::Record(bool finished) const {
  protocol::RunRecord record{.job_name = options_.job_name,
                             .job_uid = options_.job_uid,
                             .term = term_.number,
                             .finished = finished,
                             .coordinator_incarnation = incarnation_};
  // A rack does not repair losses, but its next coordinator must report the end of the run.
  const bool needed = RepairsLosses(options_) || (finished && options_.in_rack);
  if (!needed || !term_.announced) return record;
  record.generation = term_.generation;
  record.restore_step = term_.restore_step;
  record.parameters_agree = term_.parameters_agree;
  record.table = roster_.table();
  record.members = roster_.Records();
  return record;
}

protocol::CheckpointManifest TermMessages::ManifestHead(uint64_t step) const {
  return {.job_name = options_.job_name,
          .job_hash = options_.job_hash,
          .job_uid = options_.job_uid,
          .term = term_.number,
          .step = step,
          .world_size = options_.world_size,
          .shards = options_.shards,
          .table_hash = protocol::HashTensorTable(roster_.table()),
          .layout = options_.exchange.compression.layout,
          .software_version = options_.software_version,
          .at_shards = options_.checkpoint.at_shards(),
          .parts = {}};
}

}  // namespace sluice::server
