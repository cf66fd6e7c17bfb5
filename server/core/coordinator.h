// Coordinator: who is in the job and how it stands, for membership `fixed`. docs/protocol.md has
// the rules. Generation 1 is made when every rank and shard is there, told to all shards, and
// answered to the workers once all shards have acknowledged it. Whoever is then not heard of for a
// lease ends the job. Pure: times and random numbers come in, effects go out as values. Not
// thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "job/exchange.h"
#include "job/layout.h"
#include "job/snapshot.h"
#include "job/tensor_table.h"
#include "server/core/job_status.h"
#include "server/core/notice.h"

namespace sluice {

using JoinToken = uint64_t;        // Names one Join call that waits for its answer; never 0.
using ControlStreamId = uint64_t;  // Names one Attach stream of a shard; never 0.

struct CoordinatorOptions {
  std::string job_name;
  uint64_t job_hash = 0;
  std::string software_version;
  uint32_t world_size = 1;
  uint32_t shards = 1;
  LayoutParameters layout;
  uint64_t window_bytes = 16 << 20;
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration join_timeout = absl::Seconds(60);
  uint64_t job_uid = 0;  // Random per run.
  uint64_t server_incarnation = 0;
};

struct WorkerJoin {
  std::string job_name;
  uint64_t job_hash = 0;
  uint64_t nonce = 0;  // Random per worker start.
  uint32_t rank = 0;
  TensorTable table;
  std::string parameters_sha256;
  std::string software_version;
  std::string host;
  uint32_t pid = 0;
};

struct ShardPlace {
  uint32_t shard = 0;
  std::string address;
  uint64_t server_incarnation = 0;
};

struct JoinGrant {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint32_t generation = 0;
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  LayoutParameters layout;
  std::vector<ShardPlace> shards{};
  uint64_t window_bytes = 0;
  bool parameters_agree = true;
  uint64_t restore_step = 0;  // Of the job checkpoint to begin with; 0: none.
  absl::Duration lease;
  absl::Duration heartbeat;
  uint64_t server_incarnation = 0;
};

struct ShardArrival {
  std::string job_name;
  uint64_t job_hash = 0;
  uint32_t shard = 0;
  std::string address;
  uint64_t server_incarnation = 0;
  std::string software_version;
};

struct ShardHealthReport {
  uint64_t highest_closed_step = 0;
  uint64_t highest_open_step = 0;
  uint64_t elements = 0;
  uint64_t in_flight_bytes = 0;
};

struct WorkerHeartbeat {
  Sender sender;
  MemberProgress progress;
  uint64_t parameters_hash_step = 0;  // 0: none.
  std::string parameters_sha256;
};

struct WorkerLeave {
  WorkerHeartbeat last;
  bool finished = false;  // False: it gave up.
  std::string reason;
};

struct StartShard {
  uint64_t job_uid = 0;
  uint32_t term = 0;
  uint64_t first_step = 1;
  TensorTable table;
  LayoutParameters layout;
  uint32_t generation = 0;
  std::vector<uint64_t> incarnations{};  // By rank.
  uint64_t window_bytes = 0;
  uint64_t coordinator_incarnation = 0;
  bool parameters_agree = true;
  uint64_t restore_step = 0;  // Of the job checkpoint to begin with; 0: none.
};
// Of shard 0: announce a job checkpoint for after a step that is at least this one and two after
// the open one.
struct NameCheckpoint {
  uint64_t minimum_step = 0;
};
// All of earlier terms is over; a StartShard of this term follows.
struct SuspendShard {
  uint32_t term = 0;
  std::string reason;
};
struct EndShard {
  JobPhase phase = JobPhase::kFinished;
  std::string reason;
};

struct AnswerJoin {
  JoinToken token = 0;
  absl::StatusOr<JoinGrant> grant;
};
struct CommandShard {
  ControlStreamId stream = 0;
  uint64_t sequence = 0;
  std::variant<StartShard, EndShard, NameCheckpoint, SuspendShard> command;
};
// Close the stream with this error.
struct RefuseShard {
  ControlStreamId stream = 0;
  absl::Status why;
};
// Make it durable before any later effect is carried out; if that fails, Fail the job.
struct PersistRun {
  RunRecord record;
};
// Write it durably and call CheckpointWritten.
struct WriteCheckpoint {
  CheckpointManifest manifest;
};
// Remove what lies on disk of the checkpoint after this step.
struct DropCheckpoint {
  uint64_t step = 0;
};
using CoordinatorEffect = std::variant<AnswerJoin, CommandShard, RefuseShard, PersistRun,
                                       WriteCheckpoint, DropCheckpoint, Notice>;

// How the job stands, for a worker that asks.
struct JobState {
  JobPhase phase = JobPhase::kWaiting;
  std::string failure;
  uint32_t generation = 0;
};

class Coordinator {
 public:
  using Effects = std::vector<CoordinatorEffect>;

  Coordinator(CoordinatorOptions options, absl::Time now);

  // Answered now or later by an AnswerJoin. The same nonce again is the same member; an older call
  // of it that still waits is answered ABORTED. Errors as the Join rpc documents them.
  void Join(JoinToken token, WorkerJoin join, absl::Time now, Effects* out);
  // The caller is gone; before generation 1 its rank is free again.
  void JoinCancelled(JoinToken token);
  // FAILED_PRECONDITION: the sender is of another run or does not hold its rank.
  absl::StatusOr<JobState> Heartbeat(const WorkerHeartbeat& heartbeat, absl::Time now,
                                     Effects* out);
  absl::StatusOr<JobState> Leave(const WorkerLeave& leave, absl::Time now, Effects* out);

  void AttachShard(ControlStreamId stream, const ShardArrival& arrival, absl::Time now,
                   Effects* out);
  void ShardHealth(ControlStreamId stream, const ShardHealthReport& health, absl::Time now);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now, Effects* out);
  void ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out);
  // The stream is gone. The shard may attach again; its lease runs.
  void ShardDetached(ControlStreamId stream);

  // Leases and the join timeout. When more than a quarter of the lease passed since the last tick,
  // this process was stopped, and all timers are shifted by that gap.
  void Tick(absl::Time now, Effects* out);
  // Ends the job with `reason`; nothing if it has ended.
  void Fail(absl::string_view reason, Effects* out);

  JobPhase phase() const { return phase_; }
  const std::string& failure() const { return failure_; }
  // The job has ended, and all shards and workers that are there know it.
  bool Drained() const;
  JobStatus Status(absl::Time now) const;

 private:
  struct Member {
    bool present = false;
    WorkerJoin join;  // Without the table.
    uint64_t incarnation = 0;
    JoinToken token = 0;  // 0: no call waits.
    bool left = false;
    bool told_end = false;
    absl::Time heard;
    MemberProgress progress;
  };
  struct ShardSeat {
    bool known = false;  // Said hello at least once.
    ShardArrival arrival;
    ControlStreamId stream = 0;  // 0: not attached now.
    uint64_t acknowledged = 0;   // Highest sequence.
    absl::Time heard;
    ShardHealthReport health;
  };
  struct ParameterHash {
    uint32_t rank = 0;  // Who told it first.
    std::string sha256;
    std::set<uint32_t> told;  // Ranks.
  };

  absl::Status CheckJoin(const WorkerJoin& join) const;
  absl::Status CheckArrival(const ShardArrival& arrival) const;
  absl::Status CheckSameJob(absl::string_view who, absl::string_view job_name, uint64_t job_hash,
                            absl::string_view version) const;
  absl::StatusOr<Member*> FindMember(const Sender& sender);
  ShardSeat* FindSeat(ControlStreamId stream);
  void StartWhenComplete(absl::Time now, Effects* out);
  void GrantWhenAcknowledged(absl::Time now, Effects* out);
  JoinGrant MakeGrant(const Member& member) const;
  StartShard MakeStart() const;
  void Hear(const WorkerHeartbeat& heartbeat, Member* member, absl::Time now, Effects* out);
  void CompareParameters(const WorkerHeartbeat& heartbeat, Effects* out);
  JobState StateFor(Member* member) const;
  void CheckLeases(absl::Time now, Effects* out);
  void End(JobPhase phase, absl::string_view reason, absl::StatusCode join_code, Effects* out);
  std::string Describe(const Member& member) const;
  std::string WhoIsMissing() const;

  const CoordinatorOptions options_;
  const absl::Time created_;
  absl::Time waiting_since_;
  absl::Time last_tick_;
  JobPhase phase_ = JobPhase::kWaiting;
  bool announced_ = false;  // Generation 1 was told to the shards.
  bool parameters_agree_ = true;
  std::string failure_;
  std::vector<Member> members_;   // By rank.
  std::vector<ShardSeat> seats_;  // By shard.
  TensorTable table_;             // Of the first to join; empty: nobody did.
  uint32_t table_rank_ = 0;
  std::map<uint64_t, ParameterHash> hashes_;  // By step; at most kHashSteps.
};

}  // namespace sluice
