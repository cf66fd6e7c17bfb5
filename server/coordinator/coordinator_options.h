// SPDX-License-Identifier: Apache-2.0
// CoordinatorOptions: the settings of a job for the coordinator, from the job file and the run
// directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/exchange_spec.h"
#include "job/momentum.h"
#include "job/server_spec.h"
#include "protocol/checkpoint_spec.h"
#include "protocol/snapshot.h"

namespace sluice::server {

// Settings of a job in which workers join and leave while the job runs. Requires checkpoints and a
// replay_limit, so that newcomers can catch up.
struct ElasticMembership {
  uint32_t start = 1;  // Number of workers that the job begins with.
  uint32_t least = 1;  // If fewer workers are left, the job waits for newcomers.
};

struct CoordinatorOptions {
  std::string job_name;
  uint64_t job_hash = 0;
  std::string software_version;
  uint32_t world_size = 1;                     // Number of ranks. Elastic: the maximum.
  std::optional<ElasticMembership> elastic{};  // If unset, all ranks take part all the time.
  uint32_t shards = 1;
  job::ExchangeSpec exchange{};
  // The coordinator uses the timeouts and window_bytes.
  job::ServerSpec server{};
  // Without a folder, the job has no checkpoints and ends when a process is lost. With a
  // replay_limit of 0, every loss causes a rollback.
  protocol::CheckpointSpec checkpoint{};
  // True if the shards keep the parameters. Rank 0 sends the initial parameters in step 0.
  bool shards_update = false;
  // True if the workers are relays. Messages call them relays, and step 0 always sends the
  // parameters, because a relay cannot tell whether its rack's parameters equal those of the other
  // racks.
  bool relays = false;
  // True for a relay's own coordinator, which runs the rack. The relay is a worker of the parent
  // job, which decides the step that a term begins with, names the checkpoints, and decides when
  // the job is finished. The effects AskParent and LeaveParent ask the parent job; StartRackTerm,
  // ParentLost and FinishParent deliver its answers. No loss is repaired in place.
  bool in_rack = false;
  // In a rack whose parent job makes compression plans. The rack begins with the parent's first
  // plan.
  std::optional<job::ParentPlans> parent_plans{};
  // Workers report progress in their own steps. They exchange each fragment once in this many of
  // these steps, and an exchange ends `fragment_delay` of them after it began.
  uint64_t steps_per_exchange = 1;
  uint64_t fragment_delay = 0;
  uint64_t job_uid = 0;  // Random per run.
  // For messages: why losses are not repaired, if replay_limit is not the reason.
  std::string why_no_replay{};
  // For compression plans. The answer to Join contains the first plan.
  job::MomentumRange momentum{};
  std::string momentum_note{};  // For messages.
  // With checkpoints: the run record of an earlier coordinator. If unset, a new run begins.
  // Otherwise the run continues with the record's job_uid. It continues in the record's term if
  // that term was announced and replay_limit is not 0, and in the next term otherwise. If the
  // record says that the run has finished, the coordinator only reports the end to workers that may
  // not know it yet.
  std::optional<protocol::RunRecord> run{};
  // Complete checkpoints of that run, by ascending step. The newest one has been verified.
  std::vector<protocol::CheckpointManifest> checkpoints{};
  // Steps of that run's unusable checkpoints. They are removed after the next complete checkpoint.
  std::vector<uint64_t> damaged_checkpoints{};
};

inline bool HasCheckpoints(const CoordinatorOptions& options) {
  return options.checkpoint.enabled();
}
// True if the job restores lost processes in place where it can. Otherwise every loss causes a
// rollback or ends the job.
inline bool RepairsLosses(const CoordinatorOptions& options) {
  return HasCheckpoints(options) && options.checkpoint.replay_limit > 0;
}

}  // namespace sluice::server
