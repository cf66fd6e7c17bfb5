// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/coordinator_start.h"

namespace sluice::server {

CoordinatorOptions CoordinatorOptionsOf(const ServerOptions& options, const RunFolder* folder) {
  const job::JobSpec& job = options.job;
  CoordinatorOptions out{.job_name = job.name,
                         .job_hash = job.hash,
                         .software_version = options.software_version,
                         .world_size = job::RankLimit(job),
                         .shards = job.shards,
                         .exchange = job.exchange,
                         .server = job.server,
                         .shards_update = job::ShardOptimizer(job).has_value(),
                         .relays = !job.part.weights.empty(),
                         .in_rack = job.part.rack_of > 0,
                         .parent_plans = job.part.parent_plans,
                         .steps_per_exchange = job::StepsPerExchange(job),
                         .fragment_delay = job.local.fragment_delay,
                         .job_uid = options.job_uid,
                         .momentum = job::MomentumRangeOf(job),
                         .momentum_note = job::MomentumNote(job)};
  if (job.exchange.elastic()) out.elastic = {.start = job.workers, .least = job.min_workers};
  if (folder == nullptr) return out;
  out.checkpoint = job.checkpoint;
  out.why_no_replay = job::WhyNoReplay(job);
  if (!out.why_no_replay.empty()) out.checkpoint.replay_limit = 0;
  out.run = folder->run();
  out.checkpoints = folder->checkpoints();
  out.damaged_checkpoints = folder->damaged();
  return out;
}

}  // namespace sluice::server
