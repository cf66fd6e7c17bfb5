// SPDX-License-Identifier: Apache-2.0
// Coordinator: manages the membership and state of one job; docs/protocol.md has the rules. Pure:
// the caller passes times and random numbers, and effects are returned as values. Not thread-safe.
// The coordinator passes calls on to its parts, which see only the JobRun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "protocol/job_phase.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "server/coordinator/administration.h"
#include "server/coordinator/checkpoint_reports.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/divergence_check.h"
#include "server/coordinator/elastic_members.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/job_status.h"
#include "server/coordinator/lease_watch.h"
#include "server/coordinator/loss_repair.h"
#include "server/coordinator/processes.h"

namespace sluice::server {

class Coordinator {
 public:
  using Effects = CoordinatorEffects;

  Coordinator(CoordinatorOptions options, absl::Time now);

  // Call this first. Emits the record that must be durable before any process gets an answer.
  void Begin(Effects* out) { run_.Begin(out); }

  // An AnswerJoin answers the call, now or later. Calls with the same nonce come from the same
  // member; if an older call of that member still waits, the older call fails with ABORTED. In a
  // job with checkpoints, a call for a rank that another worker holds waits until the holder sends
  // a heartbeat (ALREADY_EXISTS) or has been silent for three heartbeats (the newcomer takes its
  // place). The Join rpc documents the other errors.
  void Join(JoinToken token, protocol::WorkerJoin join, absl::Time now, Effects* out);
  // Forgets a caller that has disconnected. Before generation 1, this frees the caller's rank.
  void JoinCancelled(JoinToken token);
  // Fails with FAILED_PRECONDITION if the sender belongs to another run or does not hold its rank.
  // A sender of an earlier term receives the current term, and its report is otherwise ignored.
  absl::StatusOr<protocol::JobState> Heartbeat(const protocol::WorkerHeartbeat& heartbeat,
                                               absl::Time now, Effects* out);
  absl::StatusOr<protocol::JobState> Leave(const protocol::WorkerLeave& leave, absl::Time now,
                                           Effects* out);

  // Returns a number for a process that will attach. It is higher than all earlier numbers,
  // including those from earlier coordinators. Begin's record must be durable before the call.
  uint64_t NumberShard() { return run_.fleet().NumberProcess(); }
  void AttachShard(ControlStreamId stream, const protocol::ShardArrival& arrival, absl::Time now,
                   Effects* out);
  void ShardHealth(ControlStreamId stream, const protocol::ShardHealthReport& health,
                   absl::Time now);
  void ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now, Effects* out);
  void ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out);
  // Records that the stream has closed. The shard may attach again; its lease continues.
  void ShardDetached(ControlStreamId stream) { run_.fleet().Detach(stream); }

  // Reports a part that is durable or has an error. If the part could not be written, the
  // checkpoint is abandoned unless it is complete without the part. If the part is unreadable and
  // belongs to the checkpoint to continue from, a shard examines it (PartExaminations::Reported);
  // if the shard cannot read it either, the job rolls back to the previous checkpoint. Fails with
  // INVALID_ARGUMENT if the part belongs to another member; otherwise as Heartbeat does.
  absl::Status WorkerPart(const protocol::Sender& sender, const protocol::CheckpointPart& part,
                          absl::Time now, Effects* out) {
    return checkpoint_reports_.WorkerPart(sender, part, now, out);
  }
  void ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                 Effects* out) {
    checkpoint_reports_.ShardPart(stream, part, now, out);
  }
  // Reports the outcome of ExaminePart.
  void PartExamined(ControlStreamId stream, const protocol::CheckpointPart& part, absl::Time now,
                    Effects* out) {
    checkpoint_reports_.PartExamined(stream, part, now, out);
  }
  void ShardNamedCheckpoint(ControlStreamId stream, uint64_t step) {
    checkpoint_reports_.ShardNamedCheckpoint(stream, step);
  }
  // Reports that a worker sent different bytes in a replay. The job rolls back to the checkpoint.
  void ShardNotReproducible(ControlStreamId stream, uint32_t rank, absl::string_view reason,
                            absl::Time now, Effects* out);
  // Reports that a shard of an elastic job serves this holder of the rank no more. The job removes
  // it. Ignored if the rank has another holder now.
  void ShardRefusedRank(ControlStreamId stream, uint32_t rank, uint64_t incarnation,
                        absl::string_view reason, absl::Time now, Effects* out);
  // Call this when WriteCheckpoint has been carried out.
  void CheckpointWritten(uint64_t step, const absl::Status& status, absl::Time now, Effects* out);
  // Requests a checkpoint as soon as possible. An AnswerCheckpoint follows. Its error is
  // FAILED_PRECONDITION if the job has no checkpoints or has ended, UNAVAILABLE if the job is not
  // running or the checkpoint failed, and RESOURCE_EXHAUSTED if too many requests wait.
  void RequestCheckpoint(CheckpointToken token, Effects* out) {
    run_.checkpoints().Request(token, run_.phase(), out);
  }
  void RequestCancelled(CheckpointToken token) { run_.checkpoints().CancelRequest(token); }

  // As the methods of Administration.
  absl::StatusOr<std::string> Evict(const Eviction& eviction, absl::Time now, Effects* out) {
    return administration_.Evict(eviction, now, out);
  }
  absl::StatusOr<RunningSettings> Change(const RunningSettings& change, Effects* out) {
    return administration_.Change(change, out);
  }

  // Checks the leases and the time-outs. If much time has passed since the last tick, assumes that
  // this process was suspended and shifts all timers by that gap.
  void Tick(absl::Time now, Effects* out);
  // The next four methods are for a rack (CoordinatorOptions::in_rack). They ignore terms that are
  // over. StartRackTerm begins the term after `restore_step`, whose checkpoint is complete here, or
  // at the start of the job if `restore_step` is 0. It discards newer checkpoints.
  void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree, absl::Time now,
                     Effects* out) {
    run_.StartRackTerm(term, restore_step, parameters_agree, now, out);
  }
  // Reports that the parent job rolls back or has lost this relay. The rack begins a new term.
  void ParentLost(uint32_t term, absl::string_view cause, absl::Time now, Effects* out);
  // Reports that the parent job has finished.
  void FinishParent(uint32_t term, Effects* out) { run_.FinishParent(term, out); }
  // Reports that the parent job has completed the checkpoint after `durable_step`. The rack keeps
  // all checkpoints from the oldest of the last checkpoint_keep reported steps on.
  void ReleaseCheckpoints(uint64_t durable_step) { run_.checkpoints().Release(durable_step); }
  bool HasCheckpoint(uint64_t step) const { return run_.book().IsComplete(step); }
  // Returns OK if the checkpoint after `step` is complete here, an error if it can no longer become
  // complete, and nullopt if that is not known yet.
  std::optional<absl::Status> CheckpointOutcome(uint64_t step) const;
  // Ends the job with `reason`. Does nothing if the job has ended.
  void Fail(absl::string_view reason, Effects* out) { run_.Fail(reason, out); }

  // Returns the state that is sent to a worker of this term.
  protocol::JobState State() const;
  // Records that the last answer to this sender did not report the end of the job.
  void EndNotTold(const protocol::Sender& sender);
  // Number of this coordinator among all coordinators of the run, from 1.
  uint64_t incarnation() const { return run_.incarnation(); }
  protocol::JobPhase phase() const { return run_.phase(); }
  const std::string& failure() const { return run_.failure(); }
  uint32_t term() const { return run_.term().number; }
  // True if the job has ended and all attached shards and present workers know it.
  bool Drained() const;
  // True if at least one worker knows that the job has ended.
  bool AnyToldEnd() const { return run_.roster().AnyToldEnd(); }
  JobStatus Status(absl::Time now) const;
  // Returns what each shard has reported about its streams, from shard 0 on.
  std::vector<ShardStreams> Streams() const { return StreamsOf(run_.fleet()); }

 private:
  protocol::JobState StateForEarlierTerm(const protocol::WorkerHeartbeat& heartbeat);
  protocol::JobState StateFor(uint32_t rank);
  void AssignRank(JoinToken token, protocol::WorkerJoin join, absl::Time now, Effects* out);
  void AdmitSuccessors(absl::Time now, Effects* out);
  void ReattachShard(const ShardSeat& seat, bool is_new, absl::Time now, Effects* out);
  void CommandAttached(const ShardSeat& seat, absl::Time now, Effects* out);
  void RecordHeartbeat(const protocol::WorkerHeartbeat& heartbeat, absl::Time now, Effects* out);
  void CheckTimeouts(absl::Time now, Effects* out);

  const absl::Time created_;
  JobRun run_;
  LeaseWatch leases_;
  LossRepair repair_;
  ElasticMembers elastic_;
  Administration administration_;
  CheckpointReports checkpoint_reports_;
  DivergenceCheck divergence_;
  std::optional<uint32_t> absurd_in_term_;  // The last term in which it warned of an absurd step.
};

}  // namespace sluice::server
