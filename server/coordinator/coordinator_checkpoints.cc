// Implements rollback to the newest complete checkpoint, and passes the parts of the next one on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

void Coordinator::Begin(Effects* out) {
  if (!has_checkpoints()) return;
  // Persists even without other changes, so that no later coordinator reuses this number.
  out->push_back(PersistRun{messages_.Record(phase_ == protocol::JobPhase::kFinished)});
  if (phase_ == protocol::JobPhase::kFinished) {
    out->push_back(Notice{.text = "the run has finished; workers that do not know it yet are told",
                          .fields = {.event = "job_finished"}});
    return;
  }
  if (phase_ == protocol::JobPhase::kRunning) {
    out->push_back(Notice{.text = absl::StrCat("the coordinator was restarted; term ", term_.number,
                                               " continues, with the newest checkpoint at ",
                                               PlaceOf(book().newest())),
                          .fields = {.event = "coordinator_restarted"}});
    return;
  }
  if (phase_ != protocol::JobPhase::kRecovering) return;
  recoveries_.Continue(absl::StrCat("the coordinator was restarted; the job goes back to ",
                                    PlaceOf(term_.restore_step)),
                       term_.number, term_.restore_step, out);
}

void Coordinator::RollBack(absl::string_view cause, absl::Time now, Effects* out) {
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
  audit_.Clear();
  roster_.EndTerm();
  fleet_.BeginTerm(/*is_first=*/false);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) {
    fleet_.Suspend(shard, protocol::SuspendShard{term_.number, recoveries_.last_rollback()}, out);
  }
  StartWhenComplete(now, out);
}

absl::Status Coordinator::WorkerPart(const protocol::Sender& sender,
                                     const protocol::CheckpointPart& part, absl::Time now,
                                     Effects* out) {
  if (!has_checkpoints()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_name, " has no checkpoints"));
  }
  if (OfEarlierTerm(sender)) return absl::OkStatus();  // No checkpoint needs the part any more.
  const absl::Status is_member = roster_.CheckSender(sender);
  if (!is_member.ok()) return is_member;
  const std::string name = roster_.Describe(sender.rank);
  const bool own = part.name == protocol::WorkerPartName(sender.rank, part.term);
  // A report with an error may name any file of the checkpoint that was to be restored.
  if (!own && part.error.empty() &&
      (part.name.starts_with("worker-") || part.name.starts_with("shard-"))) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " reported ", part.name, ", which is not its own"));
  }
  if (part.server >= fleet_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " reported ", part.name, " with server ",
                                                   part.server, " of ", fleet_.size()));
  }
  roster_.SavedPart(sender.rank, part.step);
  RecordPart(part, name, now, out);
  return absl::OkStatus();
}

void Coordinator::ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part,
                            absl::Time now, Effects* out) {
  const std::optional<uint32_t> shard = fleet_.Find(stream);
  if (!shard.has_value() || !has_checkpoints()) return;
  const std::string name = Describe(fleet_[*shard]);
  if (part.error.empty() &&
      (part.name != protocol::ShardPartName(*shard, part.term) || part.server >= fleet_.size())) {
    out->push_back(Notice{
        .text = absl::StrCat(name, " reported ", part.name, ", which is not its own; ignored"),
        .warning = true,
        .fields = {.event = "part_ignored", .shard = *shard}});
    return;
  }
  RecordPart(part, name, now, out);
}

void Coordinator::RecordPart(const protocol::CheckpointPart& part, absl::string_view from,
                             absl::Time now, Effects* out) {
  if (ended() || !term_.announced) return;
  if (part.unreadable) {
    // If a newer checkpoint has replaced this one, the process that needs one will ask again.
    if (part.step == 0 || part.step != std::max(term_.restore_step, book().newest())) return;
    checkpoints_.Discard(part.step);
    RollBack(absl::StrCat("the checkpoint after step ", part.step, " cannot be used (", from, ": ",
                          part.error, ")"),
             now, out);
    return;
  }
  // An earlier coordinator or the parent job abandoned the current checkpoint for this later one.
  if (checkpoints_.Replaces(part)) {
    AbandonCheckpoint(absl::StrCat("the one after step ", part.step, " is under way"), now, out);
  }
  switch (checkpoints_.Add(part, now)) {
    case CheckpointTracker::Progress::kFailed:
      AbandonCheckpoint(absl::StrCat(from, ": ", part.error), now, out);
      break;
    case CheckpointTracker::Progress::kComplete:
      checkpoints_.WriteManifest(messages_.ManifestHead(part.step), out);
      break;
    case CheckpointTracker::Progress::kIgnored:
    case CheckpointTracker::Progress::kTaken:
      break;
  }
}

void Coordinator::CheckpointWritten(uint64_t step, const absl::Status& status, absl::Time now,
                                    Effects* out) {
  if (book().under_way() != step || step == 0) return;  // The checkpoint was abandoned.
  if (status.ok()) {
    CompleteCheckpoint(step, now, out);
  } else {
    AbandonCheckpoint(status.message(), now, out);
  }
  for (const protocol::CheckpointPart& part : checkpoints_.TakeEarly())
    RecordPart(part, part.name, now, out);
}

void Coordinator::CompleteCheckpoint(uint64_t step, absl::Time now, Effects* out) {
  checkpoints_.Complete(roster_.StepsInUse(), now, out);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) ReleaseResultsOf(shard, out);
  audit_.ForgetCompleteUpTo(step, roster_.Present());
  AskForNextCheckpoint(out);
  StartReplays(now, out);
  if (options_.elastic.has_value()) AdmitLearners(now, out);
}

void Coordinator::AbandonCheckpoint(absl::string_view why, absl::Time now, Effects* out) {
  checkpoints_.Abandon(why, now, out);
  AskForNextCheckpoint(out);
}

void Coordinator::AskForNextCheckpoint(Effects* out) {
  if (phase_ == protocol::JobPhase::kRunning) checkpoints_.AskForNext(out);
}

void Coordinator::ReleaseResultsOf(uint32_t shard, Effects* out) {
  if (!repairs_losses() || book().newest() == 0) return;
  fleet_.ReleaseResults(shard, book().newest(), out);
}

void Coordinator::NoteOtherWorldSize(Effects* out) const {
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

void Coordinator::ShardNamedCheckpoint(ControlStreamId stream, uint64_t step) {
  if (fleet_.Find(stream) != 0u || phase_ != protocol::JobPhase::kRunning) return;
  if (book().under_way() == 0) ExpectPresentRanks();
  checkpoints_.Named(step);
}

void Coordinator::GiveUpForgotten(absl::Time now, Effects* out) {
  const std::string why = checkpoints_.WhyAbandon(roster_.AllPassed(book().under_way()), now);
  if (!why.empty()) AbandonCheckpoint(why, now, out);
}

void Coordinator::ShardNotReproducible(ControlStreamId stream, uint32_t rank,
                                       absl::string_view reason, absl::Time now, Effects* out) {
  if (!fleet_.Find(stream).has_value() || rank >= roster_.size() ||
      phase_ != protocol::JobPhase::kRunning)
    return;
  RollBack(reason, now, out);
}

}  // namespace sluice::server
