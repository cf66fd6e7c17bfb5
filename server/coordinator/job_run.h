// SPDX-License-Identifier: Apache-2.0
// JobRun: the state of a job's run that all parts of its coordinator share, and the transitions of
// the run: a term begins, a rollback ends it, and the run ends. Only these transitions change the
// phase, the term and the generation. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/exchange.h"
#include "protocol/job_phase.h"
#include "protocol/snapshot.h"
#include "server/coordinator/checkpoint_driver.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/parent_gate.h"
#include "server/coordinator/recovery_log.h"
#include "server/coordinator/roster.h"
#include "server/coordinator/shard_fleet.h"
#include "server/coordinator/term.h"
#include "server/coordinator/term_messages.h"

namespace sluice::server {

// A worker's step is absurd if it is so far ahead of the newest reports of all others. If the
// others have not reported yet, for example after a restart of the coordinator, their reports
// confirm it.
inline constexpr uint64_t kAbsurdLead = uint64_t{1} << 20;

class JobRun {
 public:
  using Effects = CoordinatorEffects;

  // Begins a run, or continues the one in CoordinatorOptions::run.
  JobRun(CoordinatorOptions options, absl::Time now);
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  // Parts of the state.
  const CoordinatorOptions& options() const { return options_; }
  uint64_t incarnation() const { return incarnation_; }
  protocol::JobPhase phase() const { return phase_; }
  const std::string& failure() const { return failure_; }
  const Term& term() const { return term_; }
  Roster& roster() { return roster_; }
  const Roster& roster() const { return roster_; }
  ShardFleet& fleet() { return fleet_; }
  const ShardFleet& fleet() const { return fleet_; }
  CheckpointDriver& checkpoints() { return checkpoints_; }
  const CheckpointDriver& checkpoints() const { return checkpoints_; }
  const CheckpointTracker& book() const { return checkpoints_.tracker(); }
  RecoveryLog& recoveries() { return recoveries_; }
  const RecoveryLog& recoveries() const { return recoveries_; }
  const TermMessages& messages() const { return messages_; }

  // Questions.
  bool has_checkpoints() const { return HasCheckpoints(options_); }
  bool repairs_losses() const { return RepairsLosses(options_); }
  bool is_elastic() const { return options_.elastic.has_value(); }
  bool is_running() const { return phase_ == protocol::JobPhase::kRunning; }
  bool is_recovering() const { return phase_ == protocol::JobPhase::kRecovering; }
  bool ended() const {
    return phase_ == protocol::JobPhase::kFinished || phase_ == protocol::JobPhase::kFailed;
  }
  // True while the term waits for its processes.
  bool gathering() const {
    return !term_.announced && (phase_ == protocol::JobPhase::kWaiting || is_recovering());
  }
  bool awaits_parent() const { return parent_.awaits_start(); }
  // When the job began to wait for the processes of its term.
  absl::Time waiting_since() const { return waiting_since_; }
  // Highest step that any process reported in this term or before.
  uint64_t furthest_step() const { return furthest_step_; }
  // Highest step in the newest reports of the present workers and of the shards, unless it is
  // absurd (kAbsurdLead). A wrong step counts only until its sender's next report.
  uint64_t PresentStep() const;
  // True if the sender belongs to a term that is over. The sender then receives the current term.
  bool IsOfEarlierTerm(const protocol::Sender& sender) const;
  // Names the processes that the term still needs.
  std::string WhoIsMissing() const;

  // Start of a term.
  // Emits the record that must be durable before any process gets an answer.
  void Begin(Effects* out);
  // Sends generation 1 to the shards if all processes of the term are there.
  void StartWhenComplete(absl::Time now, Effects* out);
  // Lets the job run if all shards have started the term.
  void RunWhenStarted(absl::Time now, Effects* out);
  // As Coordinator::StartRackTerm.
  void StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree, absl::Time now,
                     Effects* out);

  // Within a term.
  // Answers the Join call of the rank.
  void GrantJoin(uint32_t rank, absl::Time now, Effects* out);
  // Answers newcomers and repeated Join calls if every shard knows the members.
  void GrantWhenMembersAreKnown(absl::Time now, Effects* out);
  // Emits the record of the present members. Send the members to the shards next.
  void BeginGeneration(Effects* out);
  // Elastic: learners that are present when a checkpoint is named also pass its step and write
  // parts.
  void ExpectPresentRanks();
  void NoteStep(uint64_t step);
  // Records that a process of the term has reported its step.
  void NotePosition() { knows_position_ = true; }
  // Extends all leases and time-outs.
  void ShiftTimes(absl::Duration gap, absl::Time now);
  // Replaces server.lease_timeout.
  void SetLease(absl::Duration lease) { options_.server.lease_timeout = lease; }

  // End of a term or of the run. These do nothing if the run has ended.
  void RollBack(absl::string_view cause, absl::Time now, Effects* out);
  void Fail(absl::string_view reason, Effects* out);
  // As Fail; calls that wait fail with DEADLINE_EXCEEDED.
  void TimeOut(absl::string_view reason, Effects* out);
  // Records that all workers have finished. A rack tells the parent job and waits for its end.
  void Finish(Effects* out);
  // As Coordinator::FinishParent.
  void FinishParent(uint32_t term, Effects* out);

 private:
  bool CanGoOnInTerm(const protocol::RunRecord& record) const;
  void GoOnInTerm(const protocol::RunRecord& record, absl::Time now);
  bool MayBegin(Effects* out);
  void GrantJoins(absl::Time now, Effects* out);
  void NoteOtherWorldSize(Effects* out) const;
  void NoteOtherShards(Effects* out) const;
  bool HasOtherShards(uint64_t step) const;
  void End(protocol::JobPhase phase, absl::string_view reason, absl::StatusCode join_code,
           Effects* out);

  CoordinatorOptions options_;
  const uint64_t incarnation_;
  absl::Time waiting_since_;
  protocol::JobPhase phase_ = protocol::JobPhase::kWaiting;
  std::string failure_;
  Term term_;
  Roster roster_;
  ShardFleet fleet_;
  CheckpointDriver checkpoints_;
  const TermMessages messages_;
  RecoveryLog recoveries_;
  ParentGate parent_;
  uint64_t furthest_step_ = 0;
  bool knows_position_ = true;  // False if no step has been reported since a restart.
};

}  // namespace sluice::server
