#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "server/control/plan_maker.h"

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
      members_(options_.world_size),
      fleet_(options_.shards, incarnation_),
      checkpoints_(options_, &fleet_),
      begin_with_(options_.elastic.has_value() ? options_.elastic->start : options_.world_size) {
  if (has_checkpoints() && options_.run.has_value()) {
    if (options_.run->finished || CanGoOnInTerm(*options_.run)) {
      GoOnInTerm(*options_.run, now);
      return;
    }
    phase_ = protocol::JobPhase::kRecovering;
    term_ = options_.run->term + 1;
    restore_step_ = book().newest();
    fleet_.ContinueRun();
  }
  checkpoints_.BeginTerm(term_);
  fleet_.BeginTerm(/*is_first=*/phase_ == protocol::JobPhase::kWaiting);
}

// Continues the term of an earlier coordinator. The members of that term report by heartbeat.
void Coordinator::GoOnInTerm(const protocol::RunRecord& record, absl::Time now) {
  phase_ = protocol::JobPhase::kRunning;
  announced_ = true;
  knows_position_ = false;
  term_ = record.term;
  generation_ = record.generation;
  restore_step_ = record.restore_step;
  parameters_agree_ = record.parameters_agree;
  table_ = record.table;
  told_class_ = RecoveryClass::kReplay;
  checkpoints_.BeginTerm(term_);
  for (uint32_t rank = 0; rank < members_.size() && rank < record.members.size(); ++rank) {
    const protocol::RunMember& from = record.members[rank];
    Member& member = members_[rank];
    member.present = from.incarnation != 0;
    member.heard = now;
    member.incarnation = from.incarnation;
    member.join.nonce = from.nonce;
    member.join.rank = rank;
    member.join.host = from.host;
    member.join.pid = from.pid;
    member.join.parameters_sha256 = from.parameters_sha256;
  }
  fleet_.ContinueTerm(CurrentMembers(), now);
  if (record.finished) {
    phase_ = protocol::JobPhase::kFinished;
    fleet_.NumberEnd();
  }
}

// The checkpoint that the term began with must still exist. Otherwise shard 0, which was lost with
// its coordinator, would have to replay earlier steps, but no process keeps their results.
bool Coordinator::CanGoOnInTerm(const protocol::RunRecord& record) const {
  return repairs_losses() && record.generation > 0 && record.members.size() == members_.size() &&
         record.restore_step <= book().newest() && protocol::ValidateTensorTable(record.table).ok();
}

void Coordinator::Join(JoinToken token, protocol::WorkerJoin join, absl::Time now, Effects* out) {
  const absl::Status valid = CheckJoin(join);
  if (!valid.ok()) {
    if (ended() && join.rank < members_.size()) members_[join.rank].told_end = true;
    out->push_back(AnswerJoin{token, valid});
    return;
  }
  Member& member = members_[join.rank];
  // The shards already know the members, so this worker is a newcomer.
  if (!member.present && options_.elastic.has_value() && announced_) {
    AwaitRank(&member, token, std::move(join), out);
    AdmitLearners(now, out);
    return;
  }
  if (!member.present) {
    AssignRank(token, std::move(join), now, out);
    return;
  }
  if (member.join.nonce != join.nonce) {
    AwaitRank(&member, token, std::move(join), out);
    return;
  }
  // The same worker sent Join again.
  if (phase_ == protocol::JobPhase::kRunning && !repairs_losses()) {
    member.heard = now;
    Grant(token, &member, out);
    return;
  }
  if (member.token != 0) {
    out->push_back(AnswerJoin{member.token, absl::AbortedError("this Join was sent again")});
  }
  member.token = token;
  if (phase_ != protocol::JobPhase::kRunning) return;
  member.heard = now;
  NoteReturn(&member, out);
  StartReplays(now, out);
  AnswerWhenMembersAreKnown(now, out);
}

void Coordinator::AssignRank(JoinToken token, protocol::WorkerJoin join, absl::Time now,
                             Effects* out) {
  Member& member = members_[join.rank];
  if (table_.empty()) {
    table_ = std::move(join.table);
    table_rank_ = join.rank;
  }
  join.table.clear();
  member.present = true;
  member.left = false;
  member.token = token;
  member.incarnation = IncarnationOf(join);
  member.join = std::move(join);
  member.heard = now;
  StartWhenComplete(now, out);
  if (!announced_) {
    out->push_back(
        Notice{.text = absl::StrCat(Describe(member), " has joined; waiting for ", WhoIsMissing()),
               .fields = {.event = "member_joined", .rank = member.join.rank}});
  }
}

uint64_t Coordinator::IncarnationOf(const protocol::WorkerJoin& join) const {
  return CounterRandom(options_.job_uid, join.rank, join.nonce).Next() | 1;
}

// Makes the newcomer wait until it is known whether the holder of the rank, if any, is alive.
void Coordinator::AwaitRank(Member* member, JoinToken token, protocol::WorkerJoin join,
                            Effects* out) {
  const bool again = member->successor_token != 0 && member->successor.nonce == join.nonce;
  if (!again) member->successor_since = last_tick_;
  RefuseSuccessor(member,
                  again ? absl::AbortedError("this Join was sent again")
                        : HeldByAnother(member->present ? member->join : member->successor),
                  out);
  member->successor_token = token;
  member->successor = std::move(join);
}

void Coordinator::RefuseSuccessor(Member* member, const absl::Status& why, Effects* out) {
  if (member->successor_token == 0) return;
  out->push_back(AnswerJoin{member->successor_token, why});
  member->successor_token = 0;
  member->successor = protocol::WorkerJoin();
}

void Coordinator::JoinCancelled(JoinToken token) {
  for (Member& member : members_) {
    if (member.successor_token == token) {
      member.successor_token = 0;
      member.successor = protocol::WorkerJoin();
      return;
    }
    if (!member.present || member.token != token) continue;
    member.token = 0;
    if (announced_) return;  // From now on, the member's lease decides.
    const JoinToken successor_token = member.successor_token;
    protocol::WorkerJoin successor = std::move(member.successor);
    member = Member();
    member.successor_token = successor_token;  // The next tick admits the successor.
    member.successor = std::move(successor);
    const bool nobody = std::none_of(members_.begin(), members_.end(),
                                     [](const Member& other) { return other.present; });
    if (nobody && term_ == 0) table_.clear();
    return;
  }
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
  if (announced_ && another && !has_checkpoints()) {
    const std::string reason =
        absl::StrCat("shard ", arrival.shard, " (", arrival.address,
                     ") was restarted; its state is lost, and the job cannot continue");
    out->push_back(RefuseShard{stream, absl::FailedPreconditionError(reason)});
    Fail(reason, out);
    return;
  }
  const bool is_new = fleet_.Attach(stream, arrival, now, out);
  if (announced_ && repairs_losses() && !ended()) {
    ReattachShard(seat, is_new, now, out);
  } else if (announced_ && another && !ended()) {
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
  } else if (announced_) {
    if (!seat.has_started()) {
      fleet_.Start(shard, MakeStart(seat), out);
    } else if (repairs_losses()) {
      fleet_.SendMembers(shard, out);
      ReleaseResultsOf(shard, out);
    }
    if (shard == 0 && book().asked_minimum() > 0) checkpoints_.AskFor(book().asked_minimum(), out);
  } else {
    fleet_.Suspend(shard, protocol::SuspendShard{term_, last_rollback_}, out);
    StartWhenComplete(now, out);
    if (!announced_) {
      out->push_back(
          Notice{.text = absl::StrCat(Describe(seat), " has joined; waiting for ", WhoIsMissing()),
                 .fields = {.event = "shard_joined", .shard = shard}});
    }
  }
}

void Coordinator::StartWhenComplete(absl::Time now, Effects* out) {
  const bool complete = IsEnough(now) && fleet_.AllAttached();
  if (!complete || !gathering() || !MayBegin(out)) return;
  announced_ = true;
  generation_ = kFirstGeneration;
  // Restored parameters are equal on all workers, whatever parameters the workers joined with.
  const Member& first = *std::find_if(members_.begin(), members_.end(),
                                      [](const Member& member) { return member.present; });
  const bool equal = std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    return !member.present || member.join.parameters_sha256 == first.join.parameters_sha256;
  });
  const bool may_agree = !options_.shards_update && !options_.relays;
  if (!options_.in_rack) parameters_agree_ = restore_step_ > 0 || (equal && may_agree);
  if (repairs_losses()) out->push_back(PersistRun{Record(/*finished=*/false)});
  fleet_.RenewLeases(now);
  for (const ShardSeat& seat : fleet_) fleet_.Start(seat.arrival.shard, MakeStart(seat), out);
}

void Coordinator::ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now,
                                    Effects* out) {
  if (!fleet_.Acknowledge(stream, sequence, now, out)) return;
  GrantWhenAcknowledged(now, out);
  AnswerWhenMembersAreKnown(now, out);
}

void Coordinator::GrantWhenAcknowledged(absl::Time now, Effects* out) {
  if (!announced_ || ended() || phase_ == protocol::JobPhase::kRunning) return;
  if (!fleet_.AllStarted()) return;
  std::string how = "runs";
  if (phase_ == protocol::JobPhase::kRecovering) {
    how = absl::StrCat("continues after step ", restore_step_);
    if (furthest_step_ > restore_step_) absl::StrAppend(&how, " (was at ", furthest_step_, ")");
  }
  phase_ = protocol::JobPhase::kRunning;
  if (options_.elastic.has_value()) began_with_ = PresentRanks();
  for (Member& member : members_) {
    if (!member.present) continue;
    member.heard = now;
    member.beaten = true;
    member.replay_from = restore_step_ + 1;
    if (member.token != 0) Grant(std::exchange(member.token, 0), &member, out);
  }
  out->push_back(Notice{.text = absl::StrCat("all ", Present(), " workers and ", fleet_.size(),
                                             " shards have joined; the job ", how),
                        .fields = {.event = "job_began", .step = restore_step_ + 1}});
  if (!has_checkpoints()) return;
  NoteOtherWorldSize(out);
  ExpectPresentRanks();
  furthest_step_ = restore_step_;
  knows_position_ = true;
  told_class_ = RecoveryClass::kReplay;
  fleet_.SetPositions(restore_step_);
  AskForNextCheckpoint(out);
}

// Keeps the checkpoint that the member restores until the member has read it.
void Coordinator::Grant(JoinToken token, Member* member, Effects* out) {
  protocol::JoinGrant grant = MakeGrant(*member);
  member->restoring_step = grant.restore_step;
  out->push_back(AnswerJoin{token, std::move(grant)});
}

protocol::JoinGrant Coordinator::MakeGrant(const Member& member) const {
  // A worker that joins in the middle of a term begins with the newest checkpoint.
  const uint64_t restore_step =
      phase_ == protocol::JobPhase::kRunning && repairs_losses() ? book().newest() : restore_step_;
  protocol::JoinGrant grant{.job_uid = options_.job_uid,
                            .term = term_,
                            .rank = member.join.rank,
                            .incarnation = member.incarnation,
                            .generation = generation_,
                            .world_size = options_.world_size,
                            .first_step = restore_step + 1,
                            .layout = options_.layout,
                            .window_bytes = options_.window_bytes,
                            .parameters_agree = parameters_agree_ || restore_step > 0,
                            .restore_step = restore_step,
                            .lease = options_.lease,
                            .heartbeat = options_.heartbeat,
                            .server_incarnation = incarnation_,
                            .late_joiner = member.late_joiner};
  if (restore_step == restore_step_) grant.members = began_with_;
  grant.shards = fleet_.Places();
  checkpoints_.AddRestoreParts(&grant);
  if (restore_step > 0) return grant;  // The checkpoint contains its plans.
  const absl::StatusOr<PlanMaker::Plan> plan = FirstPlan(
      options_.control, options_.compression, table_, options_.world_size, options_.momentum);
  if (plan.ok()) grant.plan = *plan;  // If FirstPlan failed, no shard has started.
  return grant;
}

protocol::StartShard Coordinator::MakeStart(const ShardSeat& seat) const {
  const bool replays = seat.replays();
  const uint64_t restore_step = replays ? book().newest() : restore_step_;
  protocol::StartShard start{.job_uid = options_.job_uid,
                             .term = term_,
                             .first_step = restore_step + 1,
                             .table = table_,
                             .layout = options_.layout,
                             .generation = generation_,
                             .window_bytes = options_.window_bytes,
                             .coordinator_incarnation = incarnation_,
                             .parameters_agree = parameters_agree_ || restore_step > 0,
                             .restore_step = restore_step,
                             .replay = replays};
  start.incarnations = CurrentMembers().incarnations;
  checkpoints_.AddRestorePart(seat.arrival.shard, &start);
  return start;
}

absl::StatusOr<protocol::JobState> Coordinator::Heartbeat(
    const protocol::WorkerHeartbeat& heartbeat, absl::Time now, Effects* out) {
  if (OfEarlierTerm(heartbeat.sender)) return StateForEarlierTerm(heartbeat);
  absl::StatusOr<Member*> member = FindMember(heartbeat.sender);
  if (!member.ok()) return member.status();
  (*member)->replay_from = heartbeat.replay_from;
  (*member)->restoring_step = heartbeat.restoring_step;
  (*member)->disk_wait = heartbeat.disk_wait;
  RecordHeartbeat(heartbeat, *member, now, out);
  for (const protocol::CheckpointPart& part : heartbeat.parts) {
    // The heartbeat ignores errors; ReportCheckpoint reports them to the worker.
    (void)WorkerPart(heartbeat.sender, part, now, out);
  }
  protocol::JobState state = StateFor(*member);
  if (fleet_.AnyMoved(heartbeat.known_shards)) state.shards = fleet_.Places();
  return state;
}

absl::StatusOr<protocol::JobState> Coordinator::Leave(const protocol::WorkerLeave& leave,
                                                      absl::Time now, Effects* out) {
  if (OfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  absl::StatusOr<Member*> found = FindMember(leave.last.sender);
  if (!found.ok()) return found.status();
  Member& member = **found;
  RecordHeartbeat(leave.last, &member, now, out);
  // If this was the first report after a restart, it may have caused a rollback.
  if (OfEarlierTerm(leave.last.sender)) return StateForEarlierTerm(leave.last);
  if (!member.left && !leave.finished) {
    const std::string why = leave.reason.empty() ? "it gave no reason" : leave.reason;
    if (options_.elastic.has_value() && phase_ == protocol::JobPhase::kRunning) {
      GaveUp(&member, why, now, out);
      return State();
    }
    Fail(absl::StrCat(Describe(member), " gave up: ", why), out);
  }
  member.left = true;
  if (AllHaveLeft() && phase_ == protocol::JobPhase::kRunning) Finish(out);
  if (ended()) member.told_end = true;
  return StateFor(&member);
}

bool Coordinator::AllHaveLeft() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.left || !member.present; });
}

void Coordinator::RecordHeartbeat(const protocol::WorkerHeartbeat& heartbeat, Member* member,
                                  absl::Time now, Effects* out) {
  const bool stalls = options_.stall_timeout > absl::ZeroDuration() &&
                      phase_ == protocol::JobPhase::kRunning && !member->left &&
                      heartbeat.since_progress >= options_.stall_timeout;
  member->stalled = stalls ? heartbeat.since_progress : absl::ZeroDuration();
  if (stalls) return;
  member->heard = now;
  member->progress = heartbeat.progress;
  member->timings = heartbeat.timings;
  furthest_step_ = std::max(furthest_step_, ExchangedStep(heartbeat.progress));
  knows_position_ = true;
  RefuseSuccessor(member, HeldByAnother(member->join), out);
  NoteReturn(member, out);
  if (heartbeat.parameters_hash_step > 0) CompareParameters(heartbeat, now, out);
  StartReplays(now, out);
}

protocol::JobState Coordinator::StateFor(Member* member) const {
  // With checkpoints, a worker that has finished reads only the answers to its Leave.
  if (ended() && !(phase_ == protocol::JobPhase::kFinished && has_checkpoints()))
    member->told_end = true;
  return State();
}

protocol::JobState Coordinator::State() const {
  return {.phase = phase_,
          .failure = failure_,
          .generation = generation_,
          .term = term_,
          .durable_step = book().newest()};
}

void Coordinator::EndNotTold(const protocol::Sender& sender) {
  if (sender.rank < members_.size()) members_[sender.rank].told_end = false;
}

bool Coordinator::OfEarlierTerm(const protocol::Sender& sender) const {
  return sender.job_uid == options_.job_uid && sender.term < term_ && sender.rank < members_.size();
}

protocol::JobState Coordinator::StateForEarlierTerm(const protocol::WorkerHeartbeat& heartbeat) {
  furthest_step_ = std::max(furthest_step_, ExchangedStep(heartbeat.progress));
  return StateFor(&members_[heartbeat.sender.rank]);
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
    out->push_back(PersistRun{Record(/*finished=*/true)});
    checkpoints_.DropAllAtShards(out);
  }
  const absl::Status answer(
      join_code, phase == protocol::JobPhase::kFinished ? "the job has finished" : reason);
  for (Member& member : members_) {
    RefuseSuccessor(&member, answer, out);
    if (member.token == 0) continue;
    out->push_back(AnswerJoin{member.token, answer});
    member.token = 0;
    member.told_end = true;
  }
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) {
    fleet_.End(shard, protocol::EndShard{phase, failure_}, out);
  }
  checkpoints_.AnswerRequests(
      absl::FailedPreconditionError(
          absl::StrCat("the job has ",
                       phase == protocol::JobPhase::kFinished ? "finished" : "failed: ", reason)),
      out);
}

bool Coordinator::AnyToldEnd() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.told_end; });
}

bool Coordinator::Drained() const {
  if (!ended()) return false;
  // With checkpoints, an absent worker may rejoin, and one that left repeats Leave until the end.
  const bool all_must_hear = has_checkpoints() && term_ > 0 && !options_.elastic.has_value();
  return std::all_of(members_.begin(), members_.end(),
                     [this, all_must_hear](const Member& m) {
                       return m.told_end || (!m.present && !all_must_hear) ||
                              (m.left && !has_checkpoints());
                     }) &&
         fleet_.AllKnowEnd();
}

}  // namespace sluice::server
