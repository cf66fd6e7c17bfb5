#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr uint32_t kFirstGeneration = 1;
uint64_t NextIncarnation(const CoordinatorOptions& options) {
  return options.run.has_value() ? options.run->coordinator_incarnation + 1 : 1;
}

CoordinatorOptions WithUidOfRun(CoordinatorOptions options) {
  if (options.run.has_value()) options.job_uid = options.run->job_uid;
  return options;
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, absl::Time now)
    : options_(WithUidOfRun(std::move(options))),
      incarnation_(NextIncarnation(options_)),
      created_(now),
      waiting_since_(now),
      last_tick_(now),
      roster_(options_),
      fleet_(options_.shards, incarnation_),
      checkpoints_(options_, &fleet_),
      messages_(options_, incarnation_, term_, roster_, fleet_, checkpoints_) {
  if (has_checkpoints() && options_.run.has_value()) {
    if (options_.run->finished || CanGoOnInTerm(*options_.run)) {
      GoOnInTerm(*options_.run, now);
      return;
    }
    phase_ = protocol::JobPhase::kRecovering;
    term_.number = options_.run->term + 1;
    term_.restore_step = book().newest();
    fleet_.ContinueRun();
  }
  checkpoints_.BeginTerm(term_.number);
  fleet_.BeginTerm(/*is_first=*/phase_ == protocol::JobPhase::kWaiting);
}

// Continues the term of an earlier coordinator. The members of that term report by heartbeat.
void Coordinator::GoOnInTerm(const protocol::RunRecord& record, absl::Time now) {
  phase_ = protocol::JobPhase::kRunning;
  term_.announced = true;
  knows_position_ = false;
  term_.number = record.term;
  term_.generation = record.generation;
  term_.restore_step = record.restore_step;
  term_.parameters_agree = record.parameters_agree;
  recoveries_.ExpectRepairs();
  checkpoints_.BeginTerm(term_.number);
  roster_.ContinueTerm(record, now);
  fleet_.ContinueTerm(messages_.Members(), now);
  if (record.finished) {
    phase_ = protocol::JobPhase::kFinished;
    fleet_.NumberEnd();
  }
}

// The checkpoint that the term began with must still exist. Otherwise shard 0, which was lost with
// its coordinator, would have to replay earlier steps, but no process keeps their results.
bool Coordinator::CanGoOnInTerm(const protocol::RunRecord& record) const {
  return repairs_losses() && record.generation > 0 && record.members.size() == roster_.size() &&
         record.restore_step <= book().newest() && protocol::ValidateTensorTable(record.table).ok();
}

void Coordinator::Join(JoinToken token, protocol::WorkerJoin join, absl::Time now, Effects* out) {
  const absl::Status valid = CheckJoin(join);
  if (!valid.ok()) {
    if (ended() && join.rank < roster_.size()) roster_.SetToldEnd(join.rank, true);
    out->push_back(AnswerJoin{token, valid});
    return;
  }
  const uint32_t rank = join.rank;
  const Member& member = roster_[rank];
  // The shards already know the members, so this worker is a newcomer.
  if (!member.is_present() && options_.elastic.has_value() && term_.announced) {
    roster_.Await(token, std::move(join), last_tick_, out);
    AdmitLearners(now, out);
    return;
  }
  if (!member.is_present()) {
    AssignRank(token, std::move(join), now, out);
    return;
  }
  if (member.join.nonce != join.nonce) {
    roster_.Await(token, std::move(join), last_tick_, out);
    return;
  }
  // The same worker sent Join again.
  roster_.Repeat(rank, token, out);
  if (phase_ != protocol::JobPhase::kRunning) return;
  if (!repairs_losses()) {
    roster_.Answer(rank, messages_.Grant(member, grants_from_newest()), now, out);
    return;
  }
  roster_.Return(rank, now, out);
  StartReplays(now, out);
  AnswerWhenMembersAreKnown(now, out);
}

void Coordinator::AssignRank(JoinToken token, protocol::WorkerJoin join, absl::Time now,
                             Effects* out) {
  const uint32_t rank = join.rank;
  roster_.Seat(token, std::move(join), now);
  StartWhenComplete(now, out);
  if (!term_.announced) {
    out->push_back(Notice{
        .text = absl::StrCat(roster_.Describe(rank), " has joined; waiting for ", WhoIsMissing()),
        .fields = {.event = "member_joined", .rank = rank}});
  }
}

void Coordinator::JoinCancelled(JoinToken token) {
  if (roster_.Cancel(token, term_.announced) && term_.number == 0) roster_.ForgetUnusedTable();
}

void Coordinator::AttachShard(ControlStreamId stream, const protocol::ShardArrival& arrival,
                              absl::Time now, Effects* out) {
  const absl::Status valid = CheckArrival(arrival);
  if (!valid.ok()) {
    out->push_back(RefuseShard{stream, valid});
    return;
  }
  const ShardSeat& seat = fleet_[arrival.shard];
  const bool another = seat.is_known() && !seat.IsHeldBy(arrival);
  if (term_.announced && another && !has_checkpoints()) {
    const std::string reason =
        absl::StrCat("shard ", arrival.shard, " (", arrival.address,
                     ") was restarted; its state is lost, and the job cannot continue");
    out->push_back(RefuseShard{stream, absl::FailedPreconditionError(reason)});
    Fail(reason, out);
    return;
  }
  const bool is_new = fleet_.Attach(stream, arrival, now, out);
  if (term_.announced && repairs_losses() && !ended()) {
    ReattachShard(seat, is_new, now, out);
  } else if (term_.announced && another && !ended()) {
    RollBack(absl::StrCat(Describe(seat), " was restarted"), now, out);
  } else {
    CommandAttached(seat, now, out);
  }
}

// Sends a shard that has just attached the commands that it may have missed.
void Coordinator::CommandAttached(const ShardSeat& seat, absl::Time now, Effects* out) {
  const uint32_t shard = seat.arrival.shard;
  if (ended()) {
    fleet_.End(shard, protocol::EndShard{phase_, failure_}, out);
  } else if (term_.announced) {
    if (!seat.has_started()) {
      fleet_.Start(shard, messages_.Start(seat), out);
    } else if (repairs_losses()) {
      fleet_.SendMembers(shard, out);
      ReleaseResultsOf(shard, out);
    }
    if (shard == 0 && book().asked_minimum() > 0) checkpoints_.AskFor(book().asked_minimum(), out);
  } else {
    fleet_.Suspend(shard, protocol::SuspendShard{term_.number, recoveries_.last_rollback()}, out);
    StartWhenComplete(now, out);
    if (!term_.announced) {
      out->push_back(
          Notice{.text = absl::StrCat(Describe(seat), " has joined; waiting for ", WhoIsMissing()),
                 .fields = {.event = "shard_joined", .shard = shard}});
    }
  }
}

void Coordinator::StartWhenComplete(absl::Time now, Effects* out) {
  const bool recovers = phase_ == protocol::JobPhase::kRecovering;
  const bool enough =
      roster_.IsEnough(recovers ? std::optional(now - waiting_since_) : std::nullopt);
  const bool complete = enough && fleet_.AllAttached();
  if (!complete || !gathering() || !MayBegin(out)) return;
  term_.announced = true;
  term_.generation = kFirstGeneration;
  // Restored parameters are equal on all workers, whatever parameters the workers joined with.
  const bool may_agree = !options_.shards_update && !options_.relays;
  if (!options_.in_rack) {
    term_.parameters_agree = term_.restore_step > 0 || (roster_.ParametersAreEqual() && may_agree);
  }
  if (repairs_losses()) out->push_back(PersistRun{messages_.Record(/*finished=*/false)});
  fleet_.RenewLeases(now);
  for (const ShardSeat& seat : fleet_) fleet_.Start(seat.arrival.shard, messages_.Start(seat), out);
}

void Coordinator::ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now,
                                    Effects* out) {
  if (!fleet_.Acknowledge(stream, sequence, now, out)) return;
  GrantWhenAcknowledged(now, out);
  AnswerWhenMembersAreKnown(now, out);
}

void Coordinator::GrantWhenAcknowledged(absl::Time now, Effects* out) {
  if (!term_.announced || ended() || phase_ == protocol::JobPhase::kRunning) return;
  if (!fleet_.AllStarted()) return;
  std::string how = "runs";
  if (phase_ == protocol::JobPhase::kRecovering) {
    how = absl::StrCat("continues after step ", term_.restore_step);
    if (furthest_step_ > term_.restore_step)
      absl::StrAppend(&how, " (was at ", furthest_step_, ")");
  }
  phase_ = protocol::JobPhase::kRunning;
  roster_.BeginTerm(term_.restore_step, now);
  GrantWaiting(now, out);
  out->push_back(Notice{.text = absl::StrCat("all ", roster_.Present(), " workers and ",
                                             fleet_.size(), " shards have joined; the job ", how),
                        .fields = {.event = "job_began", .step = term_.restore_step + 1}});
  if (!has_checkpoints()) return;
  NoteOtherWorldSize(out);
  ExpectPresentRanks();
  furthest_step_ = term_.restore_step;
  knows_position_ = true;
  recoveries_.ExpectRepairs();
  fleet_.SetPositions(term_.restore_step);
  AskForNextCheckpoint(out);
}

void Coordinator::GrantWaiting(absl::Time now, Effects* out) {
  for (const uint32_t rank : roster_.Waiting()) {
    roster_.Answer(rank, messages_.Grant(roster_[rank], grants_from_newest()), now, out);
  }
}

absl::StatusOr<protocol::JobState> Coordinator::Heartbeat(
    const protocol::WorkerHeartbeat& heartbeat, absl::Time now, Effects* out) {
  if (OfEarlierTerm(heartbeat.sender)) return StateForEarlierTerm(heartbeat);
  const absl::Status is_member = roster_.CheckSender(heartbeat.sender);
  if (!is_member.ok()) return is_member;
  roster_.ReportFiles(heartbeat);
  RecordHeartbeat(heartbeat, now, out);
  for (const protocol::CheckpointPart& part : heartbeat.parts) {
    // The heartbeat ignores errors; ReportCheckpoint reports them to the worker.
    (void)WorkerPart(heartbeat.sender, part, now, out);
  }
  protocol::JobState state = StateFor(heartbeat.sender.rank);
  if (fleet_.AnyMoved(heartbeat.known_shards)) state.shards = fleet_.Places();
  return state;
}

absl::StatusOr<protocol::JobState> Coordinator::Leave(const protocol::WorkerLeave& leave,
                                                      absl::Time now, Effects* out) {
  if (OfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  const absl::Status is_member = roster_.CheckSender(leave.last.sender);
  if (!is_member.ok()) return is_member;
  RecordHeartbeat(leave.last, now, out);
  // If this was the first report after a restart, it may have caused a rollback.
  if (OfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  const uint32_t rank = leave.last.sender.rank;
  if (!roster_[rank].has_left() && !leave.finished) {
    const std::string why = leave.reason.empty() ? "it gave no reason" : leave.reason;
    if (options_.elastic.has_value() && phase_ == protocol::JobPhase::kRunning) {
      GaveUp(rank, why, now, out);
      return State();
    }
    Fail(absl::StrCat(roster_.Describe(rank), " gave up: ", why), out);
  }
  roster_.Leave(rank);
  if (roster_.AllHaveLeft() && phase_ == protocol::JobPhase::kRunning) Finish(out);
  if (ended()) roster_.SetToldEnd(rank, true);
  return StateFor(rank);
}

void Coordinator::RecordHeartbeat(const protocol::WorkerHeartbeat& heartbeat, absl::Time now,
                                  Effects* out) {
  if (!roster_.Report(heartbeat, phase_ == protocol::JobPhase::kRunning, now, out)) return;
  furthest_step_ = std::max(furthest_step_, roster_.ExchangedStep(heartbeat.progress));
  knows_position_ = true;
  if (heartbeat.parameters_hash_step > 0) CompareParameters(heartbeat, now, out);
  StartReplays(now, out);
}

protocol::JobState Coordinator::StateFor(uint32_t rank) {
  // With checkpoints, a worker that has finished reads only the answers to its Leave.
  if (ended() && !(phase_ == protocol::JobPhase::kFinished && has_checkpoints()))
    roster_.SetToldEnd(rank, true);
  return State();
}

protocol::JobState Coordinator::State() const {
  return {.phase = phase_,
          .failure = failure_,
          .generation = term_.generation,
          .term = term_.number,
          .durable_step = book().newest()};
}

void Coordinator::EndNotTold(const protocol::Sender& sender) {
  if (sender.rank < roster_.size()) roster_.SetToldEnd(sender.rank, false);
}

bool Coordinator::OfEarlierTerm(const protocol::Sender& sender) const {
  return sender.job_uid == options_.job_uid && sender.term < term_.number &&
         sender.rank < roster_.size();
}

protocol::JobState Coordinator::StateForEarlierTerm(const protocol::WorkerHeartbeat& heartbeat) {
  furthest_step_ = std::max(furthest_step_, roster_.ExchangedStep(heartbeat.progress));
  return StateFor(heartbeat.sender.rank);
}

void Coordinator::Fail(absl::string_view reason, Effects* out) {
  End(protocol::JobPhase::kFailed, reason, absl::StatusCode::kFailedPrecondition, out);
}

void Coordinator::End(protocol::JobPhase phase, absl::string_view reason,
                      absl::StatusCode join_code, Effects* out) {
  if (ended()) return;
  phase_ = phase;
  failure_ = std::string(reason);
  fleet_.NumberEnd();
  if (has_checkpoints() && phase == protocol::JobPhase::kFinished) {
    out->push_back(PersistRun{messages_.Record(/*finished=*/true)});
    checkpoints_.DropAllAtShards(out);
  }
  const absl::Status answer(
      join_code, phase == protocol::JobPhase::kFinished ? "the job has finished" : reason);
  roster_.RefuseAll(answer, out);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) {
    fleet_.End(shard, protocol::EndShard{phase, failure_}, out);
  }
  checkpoints_.AnswerRequests(
      absl::FailedPreconditionError(
          absl::StrCat("the job has ",
                       phase == protocol::JobPhase::kFinished ? "finished" : "failed: ", reason)),
      out);
}

bool Coordinator::Drained() const {
  if (!ended()) return false;
  // With checkpoints, an absent worker may rejoin, and one that left repeats Leave until the end.
  const bool all_must_hear = has_checkpoints() && term_.number > 0 && !options_.elastic.has_value();
  return roster_.AllKnowEnd(all_must_hear) && fleet_.AllKnowEnd();
}

}  // namespace sluice::server
