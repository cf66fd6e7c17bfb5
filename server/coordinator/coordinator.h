// Coordinator: who is in the job and how it stands, for membership `fixed`. docs/protocol.md has
// the rules. Generation 1 is made when every rank and shard is there, told to all shards, and
// answered to the workers once all shards have acknowledged it. Whoever is then not heard of for a
// lease ends the job. In a job with checkpoints it is awaited, and brought back to where it was by
// what the others keep (repair); where they do not keep enough, the term is raised, everybody comes
// again, and the job goes on from the newest complete checkpoint (rollback). Pure: times and random
// numbers come in, effects go out as values. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "job/momentum.h"
#include "protocol/compression_plan.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"
#include "server/coordinator/checkpoint_book.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/job_status.h"
#include "server/shard/notice.h"

namespace sluice::server {

using JoinToken = uint64_t;        // Names one Join call that waits for its answer; never 0.
using ControlStreamId = uint64_t;  // Names one Attach stream of a shard; never 0.
using CheckpointToken = uint64_t;  // Names one RequestCheckpoint call that waits; never 0.

struct WorkerJoin {
  std::string job_name;
  uint64_t job_hash = 0;
  uint64_t nonce = 0;  // Random per worker start.
  uint32_t rank = 0;
  protocol::TensorTable table;
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
  protocol::LayoutParameters layout;
  std::vector<ShardPlace> shards{};
  uint64_t window_bytes = 0;
  bool parameters_agree = true;
  uint64_t restore_step = 0;  // Of the job checkpoint to begin with; 0: none.
  uint32_t restore_world_size = 0;
  std::vector<protocol::CheckpointPart> restore_parts{};  // As JoinReply has them.
  absl::Duration lease;
  absl::Duration heartbeat;
  uint64_t server_incarnation = 0;
  // It joins others who are further, with the parameters of the checkpoint and nothing owed.
  bool learner = false;
  std::vector<uint32_t> members{};  // As JoinReply has them.
  // Of the job's first step; null: the job makes none.
  std::shared_ptr<const protocol::CompressionPlan> plan{};
};

struct ShardArrival {
  std::string job_name;
  uint64_t job_hash = 0;
  uint32_t shard = 0;
  std::string address;
  uint64_t server_incarnation = 0;
  std::string software_version;
  // What it works for already; `running` false: nothing.
  uint64_t job_uid = 0;
  uint32_t term = 0;
  bool running = false;
  uint64_t nonce = 0;  // Random per process start.
};

// What a process waits for at a disk, as it said last; empty: nothing.
struct DiskWait {
  std::string what{};
  absl::Duration lasts{};
  std::string trouble{};  // As LongWait has it.
};

struct ShardHealthReport {
  uint64_t highest_closed_step = 0;
  uint64_t highest_open_step = 0;
  uint64_t elements = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t results_from = 0;             // The oldest step of which it keeps all results; 0: none.
  std::vector<double> waited_seconds{};  // By rank, as RankWaits.
  std::vector<LinkFigures> links{};      // By rank.
  DiskWait disk_wait{};
};

struct WorkerHeartbeat {
  protocol::Sender sender;
  MemberProgress progress;
  MemberTimings timings{};
  absl::Duration since_progress{};    // Time that it waited for others is not counted.
  uint64_t parameters_hash_step = 0;  // 0: none.
  std::string parameters_sha256;
  uint64_t replay_from = 0;  // The oldest step of which it keeps all it sent; 0: nothing is kept.
  std::vector<protocol::CheckpointPart> parts{};  // Its newest ones, durable or failed.
  // By shard: the highest server_incarnation that the worker knows.
  std::vector<uint64_t> known_shards{};
  uint64_t restoring_step = 0;  // Of the checkpoint that it still reads; 0: none.
  DiskWait disk_wait{};
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
  protocol::TensorTable table;
  protocol::LayoutParameters layout;
  uint32_t generation = 0;
  std::vector<uint64_t> incarnations{};  // By rank.
  uint64_t window_bytes = 0;
  uint64_t coordinator_incarnation = 0;
  bool parameters_agree = true;
  uint64_t restore_step = 0;  // Of the job checkpoint to begin with; 0: none.
  // The others are further: the workers send again what came after restore_step.
  bool replay = false;
  uint32_t restore_world_size = 0;
  protocol::CheckpointPart restore_part{};  // With store `shards`: the shard's own.
};
// Who holds the ranks, by rank, from now on; 0: nobody.
struct SetMembers {
  uint32_t generation = 0;
  std::vector<uint64_t> incarnations{};
};
// Results up to this step are needed no more: there is a complete checkpoint after it.
struct ReleaseResults {
  uint64_t durable_step = 0;
};
// With store `shards`: remove what lies there of checkpoints after steps below `before`, but for
// `steps`.
struct KeepCheckpoints {
  std::vector<uint64_t> steps;
  uint64_t before = 0;
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

// Of a rack. All workers and shards of `term` are here: BeginTerm is to say what it begins with.
// What belonged to the term before is over.
struct AskAbove {
  uint32_t term = 0;
  protocol::TensorTable table;
};
// Of a rack: all workers of `term` have finished; FinishAbove is to say that so has the job above.
struct LeaveAbove {
  uint32_t term = 0;
};
struct AnswerJoin {
  JoinToken token = 0;
  absl::StatusOr<JoinGrant> grant;
};
struct CommandShard {
  ControlStreamId stream = 0;
  uint64_t sequence = 0;
  std::variant<StartShard, EndShard, NameCheckpoint, SuspendShard, SetMembers, ReleaseResults,
               KeepCheckpoints>
      command;
};
// Close the stream with this error.
struct RefuseShard {
  ControlStreamId stream = 0;
  absl::Status why;
};
// Make it durable before any later effect is carried out; if that fails, Fail the job.
struct PersistRun {
  protocol::RunRecord record;
};
// Write it durably and call CheckpointWritten.
struct WriteCheckpoint {
  protocol::CheckpointManifest manifest;
};
// Remove what lies on disk of the checkpoint after this step.
struct DropCheckpoint {
  uint64_t step = 0;
};
// The step after which there is a checkpoint that was complete after it was asked for.
struct AnswerCheckpoint {
  CheckpointToken token = 0;
  absl::StatusOr<uint64_t> step;
};
using CoordinatorEffect =
    std::variant<AnswerJoin, CommandShard, RefuseShard, PersistRun, WriteCheckpoint, DropCheckpoint,
                 AnswerCheckpoint, AskAbove, LeaveAbove, Notice>;

// How the job stands, for a worker that asks.
struct JobState {
  JobPhase phase = JobPhase::kWaiting;
  std::string failure;
  uint32_t generation = 0;
  uint32_t term =
      0;  // Above the worker's: the job was rolled back, and the worker is to join again.
  uint64_t durable_step = 0;  // Of the newest complete checkpoint; 0: none.
  // In answers to heartbeats: of all shards, if one is served by a process that the worker was not
  // told of; else none.
  std::vector<ShardPlace> shards{};
};

class Coordinator {
 public:
  using Effects = std::vector<CoordinatorEffect>;

  Coordinator(CoordinatorOptions options, absl::Time now);

  // Called first: what is to be durable before anybody is told anything.
  void Begin(Effects* out);

  // Answered now or later by an AnswerJoin. The same nonce again is the same member; an older call
  // of it that still waits is answered ABORTED. Another nonce waits, in a job with checkpoints,
  // until the holder of the rank was silent for three heartbeats (then the newcomer takes its place
  // and goes through the steps after the newest checkpoint again, or the job is rolled back) or
  // beats again (ALREADY_EXISTS). Errors as the Join rpc documents them.
  void Join(JoinToken token, WorkerJoin join, absl::Time now, Effects* out);
  // The caller is gone; before generation 1 its rank is free again.
  void JoinCancelled(JoinToken token);
  // FAILED_PRECONDITION: the sender is of another run or does not hold its rank. A sender of an
  // earlier term is told the term and otherwise ignored.
  absl::StatusOr<JobState> Heartbeat(const WorkerHeartbeat& heartbeat, absl::Time now,
                                     Effects* out);
  absl::StatusOr<JobState> Leave(const WorkerLeave& leave, absl::Time now, Effects* out);

  // The number of a process that is to attach: above all that were given before, to whichever
  // shard, also by earlier coordinators. Not before what Begin persists is durable.
  uint64_t NumberShard();
  void AttachShard(ControlStreamId stream, const ShardArrival& arrival, absl::Time now,
                   Effects* out);
  void ShardHealth(ControlStreamId stream, const ShardHealthReport& health, absl::Time now);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now, Effects* out);
  void ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out);
  // The stream is gone. The shard may attach again; its lease runs.
  void ShardDetached(ControlStreamId stream);

  // A part is durable, or has an error: it could not be written, and the checkpoint is given up if
  // it is not complete without; or it is unreadable and belongs to the checkpoint that the job is
  // to go on from, and the one before is taken. INVALID_ARGUMENT: a part of somebody else.
  // FAILED_PRECONDITION: as Heartbeat.
  absl::Status WorkerPart(const protocol::Sender& sender, const protocol::CheckpointPart& part,
                          absl::Time now, Effects* out);
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                 Effects* out);
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step);
  // A worker that goes through steps anew sent something else: the job goes back to the checkpoint.
  void ShardNotReproducible(ControlStreamId stream, uint32_t rank, absl::string_view reason,
                            absl::Time now, Effects* out);
  // After WriteCheckpoint.
  void CheckpointWritten(uint64_t step, const absl::Status& status, absl::Time now, Effects* out);
  // As soon as can be; answered by an AnswerCheckpoint. FAILED_PRECONDITION: the job has no
  // checkpoints, or ended. UNAVAILABLE: it does not run now, or this one did not become complete.
  // RESOURCE_EXHAUSTED: too many wait.
  void RequestCheckpoint(CheckpointToken token, Effects* out);
  void RequestCancelled(CheckpointToken token) { requests_.erase(token); }

  // Leases and the join timeout. When more than a quarter of the lease passed since the last tick,
  // this process was stopped, and all timers are shifted by that gap.
  void Tick(absl::Time now, Effects* out);
  // The next four are of a rack (CoordinatorOptions::in_rack); of a term that is over: nothing.
  // It begins after `restore_step`, whose checkpoint here is complete, or with 0 at the start.
  // Newer ones are of no use any more.
  void BeginTerm(uint32_t term, uint64_t restore_step, bool parameters_agree, absl::Time now,
                 Effects* out);
  // The job above goes back, or has lost this relay: the rack begins a new term.
  void AboveLost(uint32_t term, absl::string_view cause, absl::Time now, Effects* out);
  // The job above has finished.
  void FinishAbove(uint32_t term, Effects* out);
  // The newest complete checkpoint above is that after `durable_step`. Kept are, of those here, the
  // newest checkpoint_keep that are complete above, and all in between and after.
  void ReleaseCheckpoints(uint64_t durable_step) { book_.Release(durable_step); }
  bool HasCheckpoint(uint64_t step) const { return book_.IsComplete(step); }
  // OK: that after `step` is complete here. An error: it never will be. None: not known yet.
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const;
  // Ends the job with `reason`; nothing if it has ended.
  void Fail(absl::string_view reason, Effects* out);

  // As a worker of this term is told it.
  JobState State() const;
  // The answer to this sender's last call did not say that the job has ended after all.
  void EndNotTold(const protocol::Sender& sender);
  // Counted from 1: how many coordinators the run had, with this one.
  uint64_t incarnation() const { return incarnation_; }
  JobPhase phase() const { return phase_; }
  const std::string& failure() const { return failure_; }
  uint32_t term() const { return term_; }
  // The job has ended, and all shards and workers that are there know it.
  bool Drained() const;
  // Some worker was told that the job has ended.
  bool AnyToldEnd() const;
  JobStatus Status(absl::Time now) const;

 private:
  struct Member {
    bool present = false;
    bool beaten = false;  // This coordinator has heard of it.
    bool lost = false;    // Its lease is over, and it is awaited.
    // Elastic: it left with this reason, and too few are left to go on without it; empty: it did
    // not.
    std::string gave_up;
    WorkerJoin join;  // Without the table.
    uint64_t incarnation = 0;
    JoinToken token = 0;  // 0: no call waits.
    bool left = false;
    bool learner = false;  // Came while others were further (elastic).
    bool told_end = false;
    absl::Time heard;
    absl::Duration stalled{};  // So long, by its last heartbeat, if that is beyond the limit.
    MemberProgress progress;
    MemberTimings timings;
    uint64_t replay_from = kEverything;  // As it said last.
    uint64_t restoring_step = 0;         // Of the checkpoint that it reads; 0: none.
    DiskWait disk_wait;
    // Another worker that wants the rank; waits for what becomes of this one.
    JoinToken successor_token = 0;  // 0: there is none.
    WorkerJoin successor;
    absl::Time successor_since;
  };
  struct ShardSeat {
    bool known = false;  // Said hello at least once.
    bool lost = false;   // Its lease is over, and it is awaited.
    ShardArrival arrival;
    ControlStreamId stream = 0;  // 0: not attached now.
    uint64_t acknowledged = 0;   // Highest sequence.
    absl::Time heard;
    ShardHealthReport health;
    // Of a process that came in the middle of the term. `awaits_start`: nothing was decided about
    // it yet. `replays`: it was told to take steps up again, and is not known to be where the
    // others are.
    bool awaits_start = false;
    bool replays = false;
    absl::Time started;            // When it acknowledged that.
    uint32_t told_generation = 0;  // By its first StartShard of the term; 0: by SetMembers only.
  };
  struct ParameterHash {
    protocol::Sender first;  // Who told it.
    std::string sha256;
    std::set<uint32_t> told;  // Ranks.
  };

  // Of replay_from and results_from that nobody told yet.
  static constexpr uint64_t kEverything = 1;
  static constexpr int kSilentHeartbeats = 3;  // Of a worker that may be replaced.
  static constexpr uint64_t kAtOnce = 1;       // As least step of a checkpoint.

  // At the shards, mean of them.
  double WaitedSeconds(uint32_t rank) const;
  void AddWaits(absl::Time now, std::vector<LongWait>* out) const;
  LinkFigures SlowestLink(uint32_t rank) const;
  bool has_checkpoints() const { return book_.enabled(); }
  bool repairs_losses() const { return has_checkpoints() && options_.replay_limit > 0; }
  bool ended() const { return phase_ == JobPhase::kFinished || phase_ == JobPhase::kFailed; }
  bool gathering() const {
    return !announced_ && (phase_ == JobPhase::kWaiting || phase_ == JobPhase::kRecovering);
  }
  bool CanGoOnInTerm(const protocol::RunRecord& record) const;
  void GoOnInTerm(const protocol::RunRecord& record, absl::Time now);
  uint64_t IncarnationOf(const WorkerJoin& join) const;
  absl::Status CheckJoin(const WorkerJoin& join) const;
  absl::Status HeldByAnother(const WorkerJoin& holder) const;
  absl::Status CheckArrival(const ShardArrival& arrival) const;
  absl::Status CheckSeatIsFree(const ShardArrival& arrival) const;
  uint64_t FirstNumber() const;
  // The process that holds the seat, with a new connection.
  static bool IsHolder(const ShardSeat& seat, const ShardArrival& arrival);
  absl::Status CheckSameJob(absl::string_view who, absl::string_view job_name, uint64_t job_hash,
                            absl::string_view version) const;
  absl::StatusOr<Member*> FindMember(const protocol::Sender& sender);
  // A worker of a term that is over; told the term.
  bool OfEarlierTerm(const protocol::Sender& sender) const;
  JobState StateForEarlierTerm(const WorkerHeartbeat& heartbeat);
  // The last step, as shards count, that a worker tells of; of a shorter last one the step before.
  uint64_t ExchangedStep(const MemberProgress& progress) const {
    return progress.step / options_.steps_per_exchange;
  }
  ShardSeat* FindSeat(ControlStreamId stream);
  void TakeRank(JoinToken token, WorkerJoin join, absl::Time now, Effects* out);
  void AwaitRank(Member* member, JoinToken token, WorkerJoin join, Effects* out);
  void AdmitSuccessors(absl::Time now, Effects* out);
  void RefuseSuccessor(Member* member, const absl::Status& why, Effects* out);
  void CommandAttached(ShardSeat* seat, absl::Time now, Effects* out);
  void StartWhenComplete(absl::Time now, Effects* out);
  void SendStart(ShardSeat* seat, Effects* out);
  void GrantWhenAcknowledged(absl::Time now, Effects* out);
  JoinGrant MakeGrant(const Member& member) const;
  void Grant(JoinToken token, Member* member, Effects* out);
  std::vector<uint64_t> StepsInUse() const;
  std::vector<ShardPlace> Places() const;
  // The highest number of a process that serves a shard.
  // The worker does not know yet that another process serves a shard.
  bool ShardsMoved(const WorkerHeartbeat& heartbeat) const;
  StartShard MakeStart(const ShardSeat& seat) const;
  void Hear(const WorkerHeartbeat& heartbeat, Member* member, absl::Time now, Effects* out);
  JobState StateFor(Member* member) const;
  void CheckWaiting(absl::Time now, Effects* out);
  void CheckLeases(absl::Time now, Effects* out);
  bool IsSilent(const Member& member, absl::Time now) const;
  bool LeaseIsOver(const Member& member, absl::Time now) const;
  void End(JobPhase phase, absl::string_view reason, absl::StatusCode join_code, Effects* out);
  std::string Describe(const Member& member) const { return Describe(member.join); }
  std::string Describe(const WorkerJoin& join) const;
  std::string Describe(const ShardSeat& seat) const;
  std::string WhoIsMissing() const;
  std::string WhoIsLost() const;
  uint32_t Present() const;
  std::vector<uint32_t> PresentRanks() const;

  // coordinator_rack.cc
  bool MayBegin(Effects* out);
  void Finish(Effects* out);

  // coordinator_elastic.cc
  bool IsEnough(absl::Time now) const;
  void RemoveTheLost(absl::Time now, Effects* out);
  void GaveUp(Member* member, absl::string_view why, absl::Time now, Effects* out);
  void AskForNewcomers(absl::Time now, Effects* out);
  void Remove(const std::vector<Member*>& members, absl::string_view how, absl::Time now,
              Effects* out);
  void AdmitLearners(absl::Time now, Effects* out);
  bool CanTakeLearners() const;
  void ExpectPresentRanks();
  std::string Vacate(const std::vector<Member*>& members);
  void AnnounceMembers(Effects* out);

  // coordinator_repair.cc
  bool Started(const ShardSeat& seat) const { return seat.acknowledged >= start_sequence_; }
  bool KnowsMembers(const ShardSeat& seat) const;
  void TakeBackShard(ShardSeat* seat, bool another, absl::Time now, Effects* out);
  void StartReplays(absl::Time now, Effects* out);
  void TellMembers(const ShardSeat& seat, Effects* out);
  void ReplaceWorkers(absl::Time now, Effects* out);
  // The newcomer that waits for the rank holds it from here on.
  void SeatSuccessor(Member* member, absl::Time now);
  std::string WhyNotReplaced(const std::vector<Member*>& members, absl::Time now) const;
  void AnswerWhenMembersAreKnown(absl::Time now, Effects* out);
  void AwaitTheLost(absl::Time now, Effects* out);
  void HearAgain(Member* member, Effects* out);
  // Some rank was heard of by this coordinator in the last `silence`.
  bool AnyAlive(absl::Time now, absl::Duration silence) const;
  // Why a shard that begins with the newest checkpoint could not get from the workers what came
  // after it; empty: it could.
  std::string WhyNoShardReplay() const;
  // Why a worker that begins with the newest checkpoint could not go on from there; empty: it
  // could.
  std::string WhyNoReexecution() const;
  std::string WhyNoFirstStep() const;
  // How those are lost that are: silent, or alive without doing anything.
  std::string HowLost(const std::vector<std::string>& silent,
                      const std::vector<std::string>& stalled) const;
  std::string Stalled(const Member& member) const;
  void AddLost(const Member& member, std::vector<std::string>* silent,
               std::vector<std::string>* others) const;
  std::string NotAllSince(uint64_t from, uint64_t first, absl::string_view what) const;
  RecoveryClass Recovery(std::string* reason) const;
  void WatchRecovery(Effects* out);
  void WatchReplays(absl::Time now, Effects* out);
  void CountRepair(absl::string_view text, Effects* out);
  void CompareParameters(const WorkerHeartbeat& heartbeat, absl::Time now, Effects* out);
  bool ComesOfARepair(const ParameterHash& hash, const protocol::Sender& sender,
                      uint64_t step) const;

  // coordinator_checkpoints.cc
  void RollBack(absl::string_view cause, absl::Time now, Effects* out);
  void ForgetMembers();
  protocol::RunRecord Record(bool finished) const;
  void TakePart(const protocol::CheckpointPart& part, absl::string_view from, absl::Time now,
                Effects* out);
  void WriteManifest(uint64_t step, Effects* out);
  void CompleteCheckpoint(uint64_t step, absl::Time now, Effects* out);
  void AbandonCheckpoint(absl::string_view why, absl::Time now, Effects* out);
  void AskForCheckpoint(uint64_t minimum_step, Effects* out);
  void AskForNextCheckpoint(Effects* out);
  bool MayNameCheckpoints() const;
  void GiveUpForgotten(absl::Time now, Effects* out);
  void ReleaseResultsOf(const ShardSeat& seat, Effects* out);
  void AnswerRequests(const absl::StatusOr<uint64_t>& step, Effects* out);
  void DropAtShards(uint64_t before, Effects* out, uint64_t given_up = 0);
  void ForgetManifests();
  // Null: there is no such checkpoint.
  const protocol::CheckpointManifest* ManifestOf(uint64_t step) const;
  void AddRestoreParts(JoinGrant* grant) const;
  void AddRestorePart(uint32_t shard, StartShard* start) const;
  void NoteOtherWorldSize(Effects* out) const;

  const CoordinatorOptions options_;
  const uint64_t incarnation_;
  uint64_t numbered_ = 0;  // Processes, by this coordinator.
  const absl::Time created_;
  absl::Time waiting_since_;
  absl::Time last_tick_;
  JobPhase phase_ = JobPhase::kWaiting;
  bool announced_ = false;   // Generation 1 of this term was told to the shards.
  uint32_t generation_ = 0;  // 0: not announced.
  bool parameters_agree_ = true;
  std::string failure_;
  std::vector<Member> members_;   // By rank.
  std::vector<ShardSeat> seats_;  // By shard.
  protocol::TensorTable table_;   // Of the first to join; empty: nobody did.
  uint32_t table_rank_ = 0;
  std::map<uint64_t, ParameterHash> hashes_;  // By step; at most kHashSteps.
  // Of commands. Those of a term are above all of the terms before, so that no acknowledgement of
  // an earlier coordinator's is taken for one of ours.
  uint64_t sequence_ = 0;
  uint64_t suspend_sequence_ = 0;
  uint64_t start_sequence_ = 0;
  uint64_t end_sequence_ = 0;
  uint64_t members_sequence_ = 0;  // Of SetMembers of the present generation; 0: it came by Start.

  // Of a rack.
  bool asked_above_ = false;  // For the term.
  bool above_began_ = false;  // It has answered.
  bool leaving_above_ = false;

  CheckpointBook book_;
  std::map<uint64_t, protocol::CheckpointManifest>
      manifests_;  // By step: of the complete ones in book_.
  uint32_t term_ = 0;
  uint64_t restore_step_ = 0;                       // What this term began with.
  uint64_t furthest_step_ = 0;                      // That anybody told of, in this term or before.
  bool knows_position_ = true;                      // False: nobody told since a restart.
  std::string checkpoint_trouble_;                  // As JobStatus has it.
  absl::Time newest_since_ = absl::InfinitePast();  // When the newest checkpoint became complete.
  uint32_t rollbacks_ = 0;
  std::string last_rollback_;
  uint32_t repairs_ = 0;
  std::string last_repair_;
  uint32_t begin_with_ = 0;                        // Elastic: so many are waited for.
  std::vector<uint32_t> began_with_;               // Elastic: the ranks that the term began with.
  uint64_t lost_workers_ = 0;                      // Elastic: removed, with what they owed.
  double lost_residual_energy_ = 0;                // That.
  uint32_t given_up_in_a_row_ = 0;                 // Checkpoints, since the last complete one;
  absl::Time given_up_at_ = absl::InfinitePast();  // the last of them.
  RecoveryClass told_class_ = RecoveryClass::kNone;
  uint64_t named_step_ = 0;  // Of the checkpoint that shard 0 named last.
  // Since when everybody is past the step of a checkpoint that was named to an earlier coordinator.
  absl::Time passed_since_ = absl::InfiniteFuture();
  std::set<CheckpointToken> requests_;
};

}  // namespace sluice::server
