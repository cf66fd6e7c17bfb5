// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/processes.h"
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {
namespace {

// Returns how far the worker's step is ahead of all steps that other workers and shards reported.
uint64_t LeadOf(const protocol::WorkerHeartbeat& heartbeat, const JobRun& run) {
  const Roster& roster = run.roster();
  uint64_t known = 0;
  for (const ShardSeat& seat : run.fleet()) {
    known = std::max(known, seat.health.highest_closed_step);
  }
  for (uint32_t rank = 0; rank < roster.size(); ++rank) {
    if (rank == heartbeat.sender.rank) continue;
    known = std::max(known, roster.ExchangedStep(roster[rank].progress));
  }
  const uint64_t step = roster.ExchangedStep(heartbeat.progress);
  return step - std::min(step, known);
}

// Notes the worker's step, unless it is absurd.
void NoteStep(const protocol::WorkerHeartbeat& heartbeat, JobRun* run) {
  if (LeadOf(heartbeat, *run) > kAbsurdLead) return;
  run->NoteStep(run->roster().ExchangedStep(heartbeat.progress));
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, absl::Time now)
    : created_(now),
      run_(std::move(options), now),
      leases_(&run_, now),
      repair_(&run_),
      elastic_(&run_),
      administration_(&run_, &elastic_),
      checkpoint_reports_(&run_),
      divergence_(&run_) {}

void Coordinator::Join(JoinToken token, protocol::WorkerJoin join, absl::Time now, Effects* out) {
  Roster& roster = run_.roster();
  absl::Status valid = CheckJoin(run_, join);
  if (valid.ok()) valid = administration_.CheckNotEvicted(join);
  if (!valid.ok()) {
    if (run_.ended() && join.rank < roster.size()) roster.SetToldEnd(join.rank, true);
    out->push_back(AnswerJoin{token, valid});
    return;
  }
  const uint32_t rank = join.rank;
  const Member& member = roster[rank];
  // The shards already know the members, so this worker is a newcomer.
  if (!member.is_present() && run_.is_elastic() && run_.term().announced) {
    roster.Await(token, std::move(join), leases_.last_tick(), out);
    elastic_.AdmitLearners(now, out);
    return;
  }
  if (!member.is_present()) {
    AssignRank(token, std::move(join), now, out);
    return;
  }
  if (member.join.nonce != join.nonce) {
    roster.Await(token, std::move(join), leases_.last_tick(), out);
    return;
  }
  // The same worker sent Join again.
  roster.Repeat(rank, token, out);
  if (!run_.is_running()) return;
  if (!run_.repairs_losses()) {
    run_.GrantJoin(rank, now, out);
    return;
  }
  roster.Return(rank, now, out);
  repair_.StartReplays(now, out);
  run_.GrantWhenMembersAreKnown(now, out);
}

void Coordinator::AssignRank(JoinToken token, protocol::WorkerJoin join, absl::Time now,
                             Effects* out) {
  const uint32_t rank = join.rank;
  run_.roster().Seat(token, std::move(join), now);
  run_.StartWhenComplete(now, out);
  if (!run_.term().announced) {
    out->push_back(Notice{.text = absl::StrCat(run_.roster().Describe(rank),
                                               " has joined; waiting for ", run_.WhoIsMissing()),
                          .fields = {.event = "member_joined", .rank = rank}});
  }
}

void Coordinator::JoinCancelled(JoinToken token) {
  const bool is_free = run_.roster().Cancel(token, run_.term().announced);
  if (is_free && run_.term().number == 0) run_.roster().ForgetUnusedTable();
}

// Admits newcomers whose predecessors are lost.
void Coordinator::AdmitSuccessors(absl::Time now, Effects* out) {
  if (run_.is_running() && run_.is_elastic()) {
    elastic_.AdmitLearners(now, out);
  } else if (run_.is_running()) {
    repair_.ReplaceWorkers(now, out);
  }
  if (!run_.gathering()) return;
  for (const Member& member : run_.roster()) {
    if (member.is_present() || !member.successor.has_value()) continue;
    Successor successor = run_.roster().TakeSuccessor(member.join.rank);
    Join(successor.token, std::move(successor.join), now, out);
  }
}

void Coordinator::AttachShard(ControlStreamId stream, const protocol::ShardArrival& arrival,
                              absl::Time now, Effects* out) {
  const absl::Status valid = CheckArrival(run_, arrival);
  if (!valid.ok()) {
    out->push_back(RefuseShard{stream, valid});
    return;
  }
  const bool announced = run_.term().announced;
  const ShardSeat& seat = run_.fleet()[arrival.shard];
  const bool another = seat.is_known() && !seat.IsHeldBy(arrival);
  if (announced && another && !run_.has_checkpoints()) {
    const std::string reason =
        absl::StrCat("shard ", arrival.shard, " (", arrival.address,
                     ") was restarted; its state is lost, and the job cannot continue");
    out->push_back(RefuseShard{stream, absl::FailedPreconditionError(reason)});
    Fail(reason, out);
    return;
  }
  const bool is_new = run_.fleet().Attach(stream, arrival, now, out);
  if (announced && run_.repairs_losses() && !run_.ended()) {
    ReattachShard(seat, is_new, now, out);
  } else if (announced && another && !run_.ended()) {
    run_.RollBack(absl::StrCat(Describe(seat), " was restarted"), now, out);
  } else {
    CommandAttached(seat, now, out);
  }
}

// Handles a shard that attaches after the term was announced, in a job that repairs losses.
void Coordinator::ReattachShard(const ShardSeat& seat, bool is_new, absl::Time now, Effects* out) {
  repair_.ShardAttached(seat, is_new, now);
  if (seat.state == ShardState::kAwaitsReplay) {
    repair_.StartReplays(now, out);
    return;
  }
  CommandAttached(seat, now, out);
  // The shard may have started without our knowledge. In that case, no acknowledgement follows.
  run_.RunWhenStarted(now, out);
  run_.GrantWhenMembersAreKnown(now, out);
}

// Sends a shard that has just attached the commands that it may have missed.
void Coordinator::CommandAttached(const ShardSeat& seat, absl::Time now, Effects* out) {
  const uint32_t shard = seat.arrival.shard;
  ShardFleet& fleet = run_.fleet();
  CheckpointDriver& checkpoints = run_.checkpoints();
  if (run_.ended()) {
    fleet.End(shard, protocol::EndShard{phase(), failure()}, out);
  } else if (run_.term().announced) {
    if (!seat.has_started()) {
      fleet.Start(shard, run_.messages().Start(seat), out);
    } else if (run_.repairs_losses()) {
      fleet.SendMembers(shard, out);
      checkpoints.ReleaseResults(shard, out);
    }
    const uint64_t asked_minimum = checkpoints.tracker().asked_minimum();
    if (shard == 0 && asked_minimum > 0) checkpoints.AskFor(asked_minimum, out);
  } else {
    fleet.Suspend(shard, protocol::SuspendShard{term(), run_.recoveries().last_rollback()}, out);
    run_.StartWhenComplete(now, out);
    if (!run_.term().announced) {
      out->push_back(Notice{
          .text = absl::StrCat(Describe(seat), " has joined; waiting for ", run_.WhoIsMissing()),
          .fields = {.event = "shard_joined", .shard = shard}});
    }
  }
}

void Coordinator::ShardHealth(ControlStreamId stream, const protocol::ShardHealthReport& health,
                              absl::Time now) {
  if (!run_.fleet().Health(stream, health, now)) return;
  if (health.highest_closed_step > 0) run_.NotePosition();
  run_.NoteStep(health.highest_closed_step);
}

void Coordinator::ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now,
                                    Effects* out) {
  if (!run_.fleet().Acknowledge(stream, sequence, now, out)) return;
  run_.RunWhenStarted(now, out);
  run_.GrantWhenMembersAreKnown(now, out);
}

void Coordinator::ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out) {
  const std::optional<uint32_t> shard = run_.fleet().Find(stream);
  if (!shard.has_value()) return;
  Fail(absl::StrCat(Describe(run_.fleet()[*shard]), ": ", reason), out);
}

void Coordinator::ShardNotReproducible(ControlStreamId stream, uint32_t rank,
                                       absl::string_view reason, absl::Time now, Effects* out) {
  if (!run_.fleet().Find(stream).has_value() || rank >= run_.roster().size()) return;
  if (run_.is_running()) run_.RollBack(reason, now, out);
}

void Coordinator::ShardRefusedRank(ControlStreamId stream, uint32_t rank, uint64_t incarnation,
                                   absl::string_view reason, absl::Time now, Effects* out) {
  const Roster& roster = run_.roster();
  if (!run_.fleet().Find(stream).has_value() || rank >= roster.size()) return;
  if (!run_.is_elastic() || !run_.is_running()) return;
  if (!roster[rank].is_present() || roster[rank].incarnation != incarnation) return;
  if (roster[rank].gave_up() || roster[rank].has_left()) return;
  elastic_.GiveUp(rank, reason, now, out);
}

void Coordinator::CheckpointWritten(uint64_t step, const absl::Status& status, absl::Time now,
                                    Effects* out) {
  if (run_.book().under_way() != step || step == 0) return;  // The checkpoint was abandoned.
  checkpoint_reports_.Written(status, now, out);
  if (status.ok()) {
    divergence_.CheckpointComplete(step);
    repair_.StartReplays(now, out);
    if (run_.is_elastic()) elastic_.AdmitLearners(now, out);
  }
  checkpoint_reports_.TakeEarlyParts(now, out);
}

absl::StatusOr<protocol::JobState> Coordinator::Heartbeat(
    const protocol::WorkerHeartbeat& heartbeat, absl::Time now, Effects* out) {
  if (run_.IsOfEarlierTerm(heartbeat.sender)) return StateForEarlierTerm(heartbeat);
  const absl::Status is_member = run_.roster().CheckSender(heartbeat.sender);
  if (!is_member.ok()) return is_member;
  run_.roster().ReportFiles(heartbeat);
  RecordHeartbeat(heartbeat, now, out);
  for (const protocol::CheckpointPart& part : heartbeat.parts) {
    // The heartbeat ignores errors; ReportCheckpoint reports them to the worker.
    (void)WorkerPart(heartbeat.sender, part, now, out);
  }
  protocol::JobState state = StateFor(heartbeat.sender.rank);
  if (run_.fleet().AnyMoved(heartbeat.known_shards)) state.shards = run_.fleet().Places();
  return state;
}

absl::StatusOr<protocol::JobState> Coordinator::Leave(const protocol::WorkerLeave& leave,
                                                      absl::Time now, Effects* out) {
  Roster& roster = run_.roster();
  if (run_.IsOfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  const absl::Status is_member = roster.CheckSender(leave.last.sender);
  if (!is_member.ok()) return is_member;
  RecordHeartbeat(leave.last, now, out);
  // If this was the first report after a restart, it may have caused a rollback.
  if (run_.IsOfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  const uint32_t rank = leave.last.sender.rank;
  if (!roster[rank].has_left() && !leave.finished) {
    const std::string why = leave.reason.empty() ? "it gave no reason" : leave.reason;
    if (run_.is_elastic() && run_.is_running()) {
      elastic_.GiveUp(rank, why, now, out);
      return State();
    }
    Fail(absl::StrCat(roster.Describe(rank), " gave up: ", why), out);
  }
  roster.Leave(rank);
  if (roster.AllHaveLeft() && run_.is_running()) run_.Finish(out);
  if (run_.ended()) roster.SetToldEnd(rank, true);
  return StateFor(rank);
}

void Coordinator::RecordHeartbeat(const protocol::WorkerHeartbeat& heartbeat, absl::Time now,
                                  Effects* out) {
  const uint32_t rank = heartbeat.sender.rank;
  if (!run_.roster().Report(heartbeat, run_.is_running(), now, out)) return;
  NoteStep(heartbeat, &run_);
  const bool is_absurd = run_.furthest_step() > 0 && LeadOf(heartbeat, run_) > kAbsurdLead;
  if (is_absurd && std::exchange(absurd_in_term_, term()) != term()) {
    out->push_back(Notice{
        .text =
            absl::StrCat(run_.roster().Describe(rank), " reports step ", heartbeat.progress.step,
                         ", which no shard and no other worker is near; it is ignored"),
        .warning = true,
        .fields = {.event = "step_ignored", .rank = rank, .step = heartbeat.progress.step}});
  }
  run_.NotePosition();
  divergence_.Compare(heartbeat, now, out);
  repair_.StartReplays(now, out);
}

protocol::JobState Coordinator::StateFor(uint32_t rank) {
  // With checkpoints, a worker that has finished reads only the answers to its Leave.
  const bool reads_leave = phase() == protocol::JobPhase::kFinished && run_.has_checkpoints();
  if (run_.ended() && !reads_leave) run_.roster().SetToldEnd(rank, true);
  return State();
}

protocol::JobState Coordinator::StateForEarlierTerm(const protocol::WorkerHeartbeat& heartbeat) {
  NoteStep(heartbeat, &run_);
  return StateFor(heartbeat.sender.rank);
}

protocol::JobState Coordinator::State() const {
  return {.phase = phase(),
          .failure = failure(),
          .generation = run_.term().generation,
          .term = term(),
          .durable_step = run_.book().newest(),
          .log_level = run_.fleet().log_level()};
}

void Coordinator::EndNotTold(const protocol::Sender& sender) {
  if (sender.rank < run_.roster().size()) run_.roster().SetToldEnd(sender.rank, false);
}

void Coordinator::Tick(absl::Time now, Effects* out) {
  leases_.Tick(now, out);
  if (run_.ended()) return;
  CheckTimeouts(now, out);
  if (!run_.has_checkpoints() || run_.ended()) return;
  AdmitSuccessors(now, out);
  checkpoint_reports_.AbandonOverdue(now, out);
  if (!run_.is_running()) return;
  run_.checkpoints().WarnOfMissing(out);
  if (!run_.repairs_losses()) return;
  repair_.StartReplays(now, out);
  repair_.EndReplays(now, out);
  checkpoint_reports_.AbandonForgotten(now, out);
  repair_.WatchOutlook(out);
}

void Coordinator::CheckTimeouts(absl::Time now, Effects* out) {
  if (run_.gathering()) {
    run_.StartWhenComplete(now, out);  // In an elastic job, fewer workers suffice after a while.
    if (run_.gathering()) leases_.CheckJoins(now, out);
  } else if (run_.repairs_losses() && run_.is_running()) {
    run_.roster().RenewWaiting(now);
    if (run_.is_elastic()) elastic_.EvictLost(now, out);
    leases_.AwaitLost(now, out);
  } else {
    leases_.CheckLeases(now, out);
  }
}

void Coordinator::ParentLost(uint32_t term, absl::string_view cause, absl::Time now, Effects* out) {
  if (term != run_.term().number) return;
  if (run_.has_checkpoints()) {
    run_.RollBack(cause, now, out);
  } else {
    Fail(cause, out);
  }
}

std::optional<absl::Status> Coordinator::CheckpointOutcome(uint64_t step) const {
  if (HasCheckpoint(step)) return absl::OkStatus();
  if (!run_.book().IsOver(step)) return std::nullopt;
  const std::string& trouble = run_.checkpoints().trouble();
  return absl::UnavailableError(absl::StrCat("the rack has no checkpoint after step ", step,
                                             trouble.empty() ? "" : ": ", trouble));
}

bool Coordinator::Drained() const {
  if (!run_.ended()) return false;
  // With checkpoints, an absent worker may rejoin, and one that left repeats Leave until the end.
  const bool all_must_hear = run_.has_checkpoints() && term() > 0 && !run_.is_elastic();
  return run_.roster().AllKnowEnd(all_must_hear) && run_.fleet().AllKnowEnd();
}

JobStatus Coordinator::Status(absl::Time now) const {
  const CoordinatorOptions& options = run_.options();
  const CheckpointDriver& checkpoints = run_.checkpoints();
  const RecoveryOutlook outlook(run_);
  JobStatus status{.job_name = options.job_name,
                   .job_uid = options.job_uid,
                   .phase = phase(),
                   .failure = failure(),
                   .generation = run_.term().generation,
                   .term = term(),
                   .world_size = options.world_size,
                   .steps_per_exchange = options.steps_per_exchange,
                   .uptime = now - created_,
                   .software_version = options.software_version,
                   .has_checkpoints = run_.has_checkpoints(),
                   .checkpoint_step = run_.book().newest(),
                   .checkpoint_interval = options.checkpoint.interval,
                   .checkpoint_trouble = checkpoints.trouble(),
                   .relays = options.relays};
  run_.recoveries().AddTo(&status);
  status.recovery_class = outlook.Class();
  status.recovery_reason = outlook.WhyRollback();
  if (checkpoints.newest_since() > absl::InfinitePast()) {
    status.checkpoint_age = now - checkpoints.newest_since();
  }
  AddProcesses(run_.roster(), run_.fleet(), now, &status);
  if (!run_.ended()) AddWaits(run_.roster(), run_.fleet(), now, &status);
  return status;
}

}  // namespace sluice::server
