// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/processes.h"

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

JobRun::JobRun(CoordinatorOptions options, absl::Time now)
    : options_(WithUidOfRun(std::move(options))),
      incarnation_(NextIncarnation(options_)),
      waiting_since_(now),
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
void JobRun::GoOnInTerm(const protocol::RunRecord& record, absl::Time now) {
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

// A term has one number of shards. The checkpoint that the term began with must still exist.
// Otherwise shard 0, which was lost with its coordinator, would have to replay earlier steps, but
// no process keeps their results.
bool JobRun::CanGoOnInTerm(const protocol::RunRecord& record) const {
  return repairs_losses() && record.generation > 0 && record.members.size() == roster_.size() &&
         record.restore_step <= book().newest() && !HasOtherShards(book().newest()) &&
         protocol::ValidateTensorTable(record.table).ok();
}

// True if another number of shards wrote the checkpoint.
bool JobRun::HasOtherShards(uint64_t step) const {
  const protocol::CheckpointManifest* const manifest = checkpoints_.ManifestOf(step);
  return manifest != nullptr && manifest->shards != options_.shards;
}

bool JobRun::IsOfEarlierTerm(const protocol::Sender& sender) const {
  return sender.job_uid == options_.job_uid && sender.term < term_.number &&
         sender.rank < roster_.size();
}

std::string JobRun::WhoIsMissing() const {
  const std::string missing = MissingProcesses(roster_, fleet_);
  return missing.empty() && awaits_parent() ? "the parent job" : missing;
}

void JobRun::Begin(Effects* out) {
  if (!has_checkpoints()) return;
  // Persists even without other changes, so that no later coordinator reuses this number.
  out->push_back(PersistRun{messages_.Record(phase_ == protocol::JobPhase::kFinished)});
  if (phase_ == protocol::JobPhase::kFinished) {
    out->push_back(Notice{.text = "the run has finished; workers that do not know it yet are told",
                          .fields = {.event = "job_finished"}});
  } else if (is_running()) {
    out->push_back(Notice{.text = absl::StrCat("the coordinator was restarted; term ", term_.number,
                                               " continues, with the newest checkpoint at ",
                                               PlaceOf(book().newest())),
                          .fields = {.event = "coordinator_restarted"}});
  } else if (is_recovering()) {
    recoveries_.Continue(absl::StrCat("the coordinator was restarted; the job goes back to ",
                                      PlaceOf(term_.restore_step)),
                         term_.number, term_.restore_step, out);
  }
}

void JobRun::StartWhenComplete(absl::Time now, Effects* out) {
  const bool enough =
      roster_.IsEnough(is_recovering() ? std::optional(now - waiting_since_) : std::nullopt);
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

// Called when all members are present. A rack asks the parent job once for each term.
bool JobRun::MayBegin(Effects* out) {
  if (!options_.in_rack || parent_.is_open()) return true;
  if (parent_.Ask()) out->push_back(AskParent{term_.number, roster_.table()});
  return false;
}

void JobRun::StartRackTerm(uint32_t term, uint64_t restore_step, bool parameters_agree,
                           absl::Time now, Effects* out) {
  if (term != term_.number || !gathering() || !parent_.asked()) return;
  checkpoints_.ContinueFrom(restore_step);
  term_.restore_step = restore_step;
  term_.parameters_agree = parameters_agree || restore_step > 0;
  parent_.Open();
  waiting_since_ = now;
  StartWhenComplete(now, out);
}

void JobRun::RunWhenStarted(absl::Time now, Effects* out) {
  if (!term_.announced || ended() || is_running()) return;
  if (!fleet_.AllStarted()) return;
  std::string how = "runs";
  if (is_recovering()) {
    how = absl::StrCat("continues after step ", term_.restore_step);
    if (furthest_step_ > term_.restore_step)
      absl::StrAppend(&how, " (was at ", furthest_step_, ")");
  }
  phase_ = protocol::JobPhase::kRunning;
  roster_.BeginTerm(term_.restore_step, now);
  GrantJoins(now, out);
  out->push_back(Notice{.text = absl::StrCat("all ", roster_.Present(), " workers and ",
                                             fleet_.size(), " shards have joined; the job ", how),
                        .fields = {.event = "job_began", .step = term_.restore_step + 1}});
  if (!has_checkpoints()) return;
  NoteOtherWorldSize(out);
  NoteOtherShards(out);
  ExpectPresentRanks();
  furthest_step_ = term_.restore_step;
  knows_position_ = true;
  recoveries_.ExpectRepairs();
  fleet_.SetPositions(term_.restore_step);
  checkpoints_.AskForNext(out);
}

void JobRun::NoteOtherWorldSize(Effects* out) const {
  const protocol::CheckpointManifest* const manifest = checkpoints_.ManifestOf(term_.restore_step);
  if (manifest == nullptr || manifest->world_size == options_.world_size) return;
  out->push_back(
      Notice{.text = absl::StrCat(
                 "the run had ", manifest->world_size, " workers and continues with ",
                 options_.world_size, " after step ", term_.restore_step,
                 ": all begin with the mean of the ranks' residuals, and the results are not bit-"
                 "identical to those of ",
                 manifest->world_size, " workers"),
             .warning = true,
             .fields = {.event = "workers_changed", .step = term_.restore_step}});
}

void JobRun::NoteOtherShards(Effects* out) const {
  if (!HasOtherShards(term_.restore_step)) return;
  const uint32_t before = checkpoints_.ManifestOf(term_.restore_step)->shards;
  out->push_back(Notice{.text = absl::StrCat("the run had ", before, " shards and continues with ",
                                             options_.shards, " after step ", term_.restore_step),
                        .fields = {.event = "shards_changed", .step = term_.restore_step}});
}

// A worker that joins in the middle of a term begins with the newest checkpoint.
void JobRun::GrantJoin(uint32_t rank, absl::Time now, Effects* out) {
  const bool from_newest = is_running() && repairs_losses();
  roster_.Answer(rank, messages_.Grant(roster_[rank], from_newest), now, out);
}

void JobRun::GrantJoins(absl::Time now, Effects* out) {
  for (const uint32_t rank : roster_.Waiting()) GrantJoin(rank, now, out);
}

void JobRun::GrantWhenMembersAreKnown(absl::Time now, Effects* out) {
  if (!repairs_losses() || !is_running() || !fleet_.AllKnowMembers()) return;
  GrantJoins(now, out);
}

void JobRun::BeginGeneration(Effects* out) {
  term_.generation += 1;
  out->push_back(PersistRun{messages_.Record(/*finished=*/false)});
}

void JobRun::ExpectPresentRanks() {
  if (!is_elastic()) return;
  (void)checkpoints_.Expect(roster_.PresentRanks());  // Completes nothing: parts are still missing.
}

void JobRun::NoteStep(uint64_t step) { furthest_step_ = std::max(furthest_step_, step); }

uint64_t JobRun::PresentStep() const {
  std::vector<uint64_t> steps;
  for (const ShardSeat& seat : fleet_) steps.push_back(seat.health.highest_closed_step);
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    if (roster_[rank].is_present()) steps.push_back(roster_.ExchangedStep(roster_[rank].progress));
  }
  std::sort(steps.begin(), steps.end());
  while (steps.size() > 1 && steps.back() - steps[steps.size() - 2] > kAbsurdLead) steps.pop_back();
  return steps.back();
}

void JobRun::ShiftTimes(absl::Duration gap, absl::Time now) {
  waiting_since_ += gap;
  checkpoints_.ShiftTimes(gap);
  roster_.ShiftLeases(gap, now);
  fleet_.ShiftLeases(gap, now);
}

void JobRun::RollBack(absl::string_view cause, absl::Time now, Effects* out) {
  if (ended()) return;
  // Heartbeats lag, so a checkpoint may be further ahead than the reported steps.
  const uint64_t was_at = std::max({furthest_step_, term_.restore_step, book().newest()});
  term_.number += 1;
  term_.announced = false;
  term_.generation = 0;
  out->push_back(PersistRun{messages_.Record(/*finished=*/false)});
  term_.restore_step = book().newest();
  parent_.ResetForTerm();
  std::string text =
      options_.in_rack
          ? absl::StrCat(cause, "; the rack starts again at the step that the parent job names")
      : knows_position_
          ? absl::StrCat(cause, "; the job goes back from step ", was_at, " to ",
                         PlaceOf(term_.restore_step), ": ",
                         was_at - std::min(was_at, term_.restore_step), " steps are lost")
          : absl::StrCat(cause, "; the job goes back to ", PlaceOf(term_.restore_step));
  recoveries_.RolledBack(std::move(text), term_.number, term_.restore_step, out);
  checkpoints_.RollBack(term_.number, recoveries_.last_rollback(), out);
  phase_ = protocol::JobPhase::kRecovering;
  waiting_since_ = now;
  roster_.EndTerm();
  fleet_.BeginTerm(/*is_first=*/false);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) {
    fleet_.Suspend(shard, protocol::SuspendShard{term_.number, recoveries_.last_rollback()}, out);
  }
  StartWhenComplete(now, out);
}

void JobRun::Fail(absl::string_view reason, Effects* out) {
  End(protocol::JobPhase::kFailed, reason, absl::StatusCode::kFailedPrecondition, out);
}

void JobRun::TimeOut(absl::string_view reason, Effects* out) {
  End(protocol::JobPhase::kFailed, reason, absl::StatusCode::kDeadlineExceeded, out);
}

void JobRun::Finish(Effects* out) {
  if (!options_.in_rack) {
    End(protocol::JobPhase::kFinished, "", absl::StatusCode::kFailedPrecondition, out);
  } else if (parent_.Leave()) {
    out->push_back(LeaveParent{term_.number});
  }
}

void JobRun::FinishParent(uint32_t term, Effects* out) {
  if (term != term_.number || !parent_.is_leaving()) return;
  End(protocol::JobPhase::kFinished, "", absl::StatusCode::kFailedPrecondition, out);
}

void JobRun::End(protocol::JobPhase phase, absl::string_view reason, absl::StatusCode join_code,
                 Effects* out) {
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

}  // namespace sluice::server
