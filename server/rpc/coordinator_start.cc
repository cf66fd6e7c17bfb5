#include "server/rpc/coordinator_start.h"

namespace sluice::server {

CoordinatorOptions CoordinatorOptionsOf(const ServerOptions& options, const RunFolder* folder) {
  const job::JobSpec& job = options.job;
  CoordinatorOptions out{.job_name = job.name,
                         .job_hash = job.hash,
                         .software_version = options.software_version,
                         .world_size = job::RankLimit(job),
                         .shards = job.shards,
                         .layout = job.compression.layout,
                         .shards_update = job::ShardOptimizer(job).has_value(),
                         .steps_per_exchange = job::StepsPerExchange(job),
                         .window_bytes = job.server.window_bytes,
                         .lease = job.server.lease_timeout,
                         .heartbeat = job.server.heartbeat_interval,
                         .stall_timeout = job.server.stall_timeout,
                         .join_timeout = job.server.join_timeout,
                         .job_uid = options.job_uid};
  out.relays = !job.weights.empty();
  out.in_rack = job.rack_of > 0;
  out.control = job.control;
  out.momentum = job::MomentumRangeOf(job);
  out.momentum_note = job::MomentumNote(job);
  out.compression = job.compression;
  if (job.membership == job::Membership::kElastic) {
    out.elastic = {.start = job.workers, .least = job.min_workers};
  }
  if (folder == nullptr) return out;
  out.checkpoint_interval = job.checkpoint.interval;
  out.checkpoint_keep = job.checkpoint.keep;
  out.checkpoints_at_shards = job.checkpoint.at_shards();
  out.rejoin_timeout = job.server.rejoin_timeout;
  out.why_no_replay = job::WhyNoReplay(job);
  out.in_lockstep = job::InLockstep(job.mode);
  out.replay_limit = out.why_no_replay.empty() ? job.checkpoint.replay_limit : 0;
  out.run = folder->run();
  out.checkpoints = folder->checkpoints();
  out.damaged_checkpoints = folder->damaged();
  return out;
}

}  // namespace sluice::server
