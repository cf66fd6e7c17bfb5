// SPDX-License-Identifier: Apache-2.0
// JobStatus: the coordinator's knowledge of a job at one moment, for GetStatus and the status page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/job_phase.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "server/control/plan_log.h"

namespace sluice::server {

// The consequence of a lost process. The job ends (kNone); the job rolls back to a checkpoint
// (kRollback); or the process catches up with the data that other processes keep (kReplay).
enum class RecoveryClass { kNone, kRollback, kReplay };

absl::string_view ToString(RecoveryClass recovery);  // none, rollback, replay

struct MemberStatus {
  uint32_t rank = 0;
  std::string host;
  uint32_t pid = 0;
  bool joined = false;
  bool left = false;
  bool lost = false;  // The member's lease has expired, and the job waits for the member.
  absl::Duration since_heartbeat{};
  protocol::MemberProgress progress{};
  protocol::MemberTimings timings{};
  // Time that this worker's requests have waited at the shards for those of other workers, summed
  // over the steps since the shards started and averaged over the shards.
  double waited_seconds = 0;
  // For each direction, the figures of the slowest link between this worker and a shard. The
  // lateness is not set.
  protocol::LinkFigures link{};
  // Set if the worker's contributions differ from the others' on some shard.
  std::optional<protocol::SuspectRank> suspect{};
};

struct ShardStatus {
  uint32_t shard = 0;
  std::string address;
  bool attached = false;
  bool lost = false;  // The shard's lease has expired, and the job waits for the shard.
  absl::Duration since_report{};
  uint64_t elements = 0;
  uint64_t highest_closed_step = 0;
};

// A process that waits for something other than a process: a disk, or a file that does not exist
// yet.
struct LongWait {
  std::string who;   // For example "worker 1 (host)".
  std::string what;  // For example "its part of the checkpoint after step 40".
  absl::Duration lasts{};
  std::string trouble{};  // Why the last attempt failed; empty if the first attempt has not ended.
};

struct JobStatus {
  std::string job_name;
  uint64_t job_uid = 0;
  protocol::JobPhase phase = protocol::JobPhase::kWaiting;
  std::string failure;  // Set with kFailed.
  uint32_t generation = 0;
  uint32_t term = 0;
  uint32_t world_size = 0;
  uint64_t steps_per_exchange = 1;      // As in CoordinatorOptions.
  std::vector<MemberStatus> members{};  // By rank.
  std::vector<ShardStatus> shards{};
  absl::Duration uptime{};
  std::string software_version;
  bool has_checkpoints = false;      // The job writes checkpoints.
  uint64_t checkpoint_step = 0;      // Step of the newest complete checkpoint; 0 if there is none.
  uint64_t checkpoint_interval = 0;  // Steps from one checkpoint to the next.
  // Unset if no checkpoint was completed since this coordinator started.
  std::optional<absl::Duration> checkpoint_age{};
  // Why the newest attempt at a checkpoint was abandoned; empty if it was not abandoned.
  std::string checkpoint_trouble{};
  uint32_t rollbacks = 0;       // Since this coordinator started.
  std::string last_rollback{};  // Describes the loss and the step that the job rolled back to.
  // How the next loss would be repaired.
  RecoveryClass recovery_class = RecoveryClass::kNone;
  // Why the class is not kReplay although the job requests replay; otherwise empty.
  std::string recovery_reason{};
  // Processes restored by replay since this coordinator started.
  uint32_t repairs = 0;
  std::string last_repair{};  // In readable form.
  bool relays = false;        // The members are relays, each for a rack of workers.
  uint64_t lost_workers = 0;  // Elastic: workers that were removed since this coordinator started.
  // Squared residuals of the removed workers, from their last reports.
  double lost_residual_energy = 0;
  JobCodecs codecs{};
  std::vector<LongWait> waits{};
  // True while the run record cannot be written. The job waits until it can be written.
  bool record_unwritten = false;
};

}  // namespace sluice::server
