// JobStatus: what the coordinator knows of a job at a moment, for GetStatus and the status page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/control/plan_log.h"
#include "server/coordinator/link_book.h"

namespace sluice::server {

// kRecovering: rolled back, and waiting for all to be there again.
enum class JobPhase { kWaiting, kRunning, kFinished, kFailed, kRecovering };

absl::string_view ToString(JobPhase phase);

// What a lost process means: the job ends, it goes back to a checkpoint, or the process is brought
// back to where it was by what the others keep.
enum class RecoveryClass { kNone, kRollback, kReplay };

absl::string_view ToString(RecoveryClass recovery);  // none, rollback, replay

// What a worker wants shown. Byte counts are sums since the job began.
struct MemberProgress {
  uint64_t step = 0;
  uint64_t total_steps = 0;
  uint32_t epoch = 0;
  double loss = 0;
  double samples_per_second = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t dense_bytes_up = 0;
  uint64_t dense_bytes_down = 0;
  double step_ms_p50 = 0;
  double validation_metric = -1;  // In 0..1; negative: none yet.
  uint64_t skipped_bundles = 0;
  std::optional<double> seconds_left{};  // To the end of the job; none: not known yet.
  double residual_energy = 0;  // Squares of what it owes, as it measured that last; 0: it does not.
};

// Where a worker's time went: sums over `steps` steps since it joined.
struct MemberTimings {
  uint64_t steps = 0;
  double compute_seconds = 0;  // Whatever is not below.
  double encode_seconds = 0;   // It waited for its own encoder.
  double decode_seconds = 0;
  double exchange_seconds = 0;  // It waited for its link, the shards or other workers.
};

struct MemberStatus {
  uint32_t rank = 0;
  std::string host;
  uint32_t pid = 0;
  bool joined = false;
  bool left = false;
  bool lost = false;  // Its lease is over; the job waits for it.
  absl::Duration since_heartbeat{};
  MemberProgress progress{};
  MemberTimings timings{};
  // Since the shards began, what it has sent lay there so long until it was answered: for other
  // workers. Mean of the shards; over steps.
  double waited_seconds = 0;
  LinkFigures link{};  // Of those to all shards the slowest each way; nothing of lateness.
};

struct ShardStatus {
  uint32_t shard = 0;
  std::string address;
  bool attached = false;
  bool lost = false;  // Its lease is over; the job waits for it.
  absl::Duration since_report{};
  uint64_t elements = 0;
  uint64_t highest_closed_step = 0;
};

// What a process waits for that is not another process: a disk, or a file that is not there yet.
struct LongWait {
  std::string who;   // "worker 1 (host)"
  std::string what;  // "its part of the checkpoint after step 40"
  absl::Duration lasts{};
  std::string trouble{};  // Why the last try failed; empty: it has not ended.
};

struct JobStatus {
  std::string job_name;
  uint64_t job_uid = 0;
  JobPhase phase = JobPhase::kWaiting;
  std::string failure;  // With kFailed.
  uint32_t generation = 0;
  uint32_t term = 0;
  uint32_t world_size = 0;
  std::vector<MemberStatus> members{};  // By rank.
  std::vector<ShardStatus> shards{};
  absl::Duration uptime{};
  std::string software_version;
  bool has_checkpoints = false;                    // The job writes some.
  uint64_t checkpoint_step = 0;                    // Of the newest complete one; 0: none.
  std::optional<absl::Duration> checkpoint_age{};  // Absent: none since this coordinator started.
  // Why the newest attempt at one was given up; empty: it was not.
  std::string checkpoint_trouble{};
  uint32_t rollbacks = 0;       // Since this coordinator started.
  std::string last_rollback{};  // What was lost and where the job went back to.
  // How the next loss would be repaired.
  RecoveryClass recovery_class = RecoveryClass::kNone;
  std::string recovery_reason{};  // Why it is not kReplay although the job asks for it; else empty.
  uint32_t repairs = 0;       // Processes brought back by replay since this coordinator started.
  std::string last_repair{};  // For a person.
  bool relays = false;        // The members are relays, of a rack of workers each.
  uint64_t lost_workers = 0;  // Elastic: removed since this coordinator started.
  double lost_residual_energy = 0;  // Squares of what they owed, as they had told last.
  JobCodecs codecs{};
  std::vector<LongWait> waits{};
  bool record_unwritten = false;  // The run's record cannot be written, and the job waits for that.
};

}  // namespace sluice::server
