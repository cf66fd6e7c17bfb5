// CoordinatorOptions: a job as its coordinator has it from the job file and from the folder of its
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "job/control_spec.h"
#include "job/momentum.h"
#include "protocol/compression_spec.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"

namespace sluice::server {

// Workers come and go while the job runs. Needs checkpoints and a replay_limit, for newcomers.
struct ElasticMembership {
  uint32_t start = 1;  // So many begin.
  uint32_t least = 1;  // With fewer left the job waits for newcomers.
};

struct CoordinatorOptions {
  std::string job_name;
  uint64_t job_hash = 0;
  std::string software_version;
  uint32_t world_size = 1;  // Ranks; elastic: the most that there may be at a time.
  std::optional<ElasticMembership> elastic{};  // None: all ranks, always.
  uint32_t shards = 1;
  protocol::LayoutParameters layout;
  bool shards_update = false;  // They keep the parameters, which rank 0's step 0 brings them.
  // Its workers are relays: named so, and step 0 always brings the parameters, since a relay cannot
  // tell whether those of its rack are as others are.
  bool relays = false;
  // A relay's own, for its rack: a job above, in which the relay is a worker, says with which step
  // a term begins, names the checkpoints, and says when all is over. AskAbove and LeaveAbove ask
  // it, BeginTerm, AboveLost and FinishAbove say what became of it. No loss is repaired in place.
  bool in_rack = false;
  // What workers tell of their progress counts their own steps, of which an exchange has so many.
  uint64_t steps_per_exchange = 1;
  uint64_t window_bytes = 16 << 20;
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat = absl::Seconds(1);
  // Heartbeats of a worker that has done nothing for so long do not renew its lease; 0: they do.
  absl::Duration stall_limit{};
  absl::Duration join_timeout = absl::Seconds(60);
  uint64_t job_uid = 0;  // Random per run.
  // Steps from one job checkpoint to the next. 0: the job has none and ends when somebody is lost.
  uint64_t checkpoint_every = 0;
  uint32_t checkpoint_keep = 2;
  bool checkpoints_at_shards = false;             // Store `shards`.
  absl::Duration wait_limit = absl::Minutes(10);  // With checkpoints: for the lost to come back.
  uint64_t replay_limit = 0;    // Of the job's checkpoints; 0: every loss is a rollback.
  std::string why_no_replay{};  // Where that is not for the limit's sake; for people.
  // False: ranks come to the step of a checkpoint at any time apart.
  bool in_lockstep = true;
  // What plans of compression are made by, for Join to bring the first.
  job::ControlSpec control{};
  job::MomentumRange momentum{};  // For plans.
  std::string momentum_note{};    // For people.
  protocol::CompressionSpec compression{};
  // With checkpoints: the record of the run as an earlier coordinator left it, unfinished. The run
  // goes on with the record's job_uid: in its term, if that was announced and replay_limit is not
  // 0, else in the next one. One that has finished is over: its workers, who may not have heard of
  // it, are told. Absent: a new run.
  std::optional<protocol::RunRecord> run{};
  // Complete checkpoints of that run, the newest verified; by step, ascending.
  std::vector<protocol::CheckpointManifest> checkpoints{};
  // Steps of those that cannot be used; removed after the next complete one.
  std::vector<uint64_t> damaged_checkpoints{};
};

}  // namespace sluice::server
