// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_reports.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "protocol/part_rights.h"

namespace sluice::server {

absl::Status CheckpointReports::WorkerPart(const protocol::Sender& sender,
                                           const protocol::CheckpointPart& part, absl::Time now,
                                           Effects* out) {
  if (!run_.has_checkpoints()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", run_.options().job_name, " has no checkpoints"));
  }
  if (run_.IsOfEarlierTerm(sender)) return absl::OkStatus();  // No checkpoint needs the part now.
  const absl::Status is_member = run_.roster().CheckSender(sender);
  if (!is_member.ok()) return is_member;
  const std::string name = run_.roster().Describe(sender.rank);
  if (part.unreadable) {
    if (!IsToRestore(part.step)) return absl::OkStatus();
    const std::string gap = examinations_.Gap(part.step);
    if (gap.empty() && !IsOfRack(sender, part)) {
      return examinations_.Reported(part, name, now, out);
    }
    Discard(part.step, absl::StrCat(name, ": ", gap.empty() ? part.error : gap), now, out);
    return absl::OkStatus();
  }
  if (!protocol::MayWritePart(sender.rank, part)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " reported ", part.name, ", which is not its own"));
  }
  const uint32_t servers = run_.fleet().size();
  if (part.server >= servers) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " reported ", part.name, " with server ", part.server, " of ", servers));
  }
  run_.roster().SavedPart(sender.rank, part.step);
  if (run_.checkpoints().MayCount(part.step)) {
    Record(part, name, now, out);
  } else {
    run_.checkpoints().Hold(part);
  }
  return absl::OkStatus();
}

void CheckpointReports::ShardPart(ControlStreamId stream, const protocol::CheckpointPart& part,
                                  absl::Time now, Effects* out) {
  const ShardFleet& fleet = run_.fleet();
  const std::optional<uint32_t> shard = fleet.Find(stream);
  if (!shard.has_value() || !run_.has_checkpoints()) return;
  const std::string name = Describe(fleet[*shard]);
  if ((part.error.empty() || part.unreadable) &&
      (part.name != protocol::ShardPartName(*shard, part.term) || part.server >= fleet.size())) {
    out->push_back(Notice{
        .text = absl::StrCat(name, " reported ", part.name, ", which is not its own; ignored"),
        .warning = true,
        .fields = {.event = "part_ignored", .shard = *shard}});
    return;
  }
  RecordOfShard(part, name, now, out);
}

// Workers' parts that came before the name are recorded before a shard's part can complete the
// checkpoint, and also if this part is the first to name it.
void CheckpointReports::RecordOfShard(const protocol::CheckpointPart& part, absl::string_view from,
                                      absl::Time now, Effects* out) {
  RecordHeld(now, out);
  Record(part, from, now, out);
  RecordHeld(now, out);
}

void CheckpointReports::RecordHeld(absl::Time now, Effects* out) {
  if (run_.ended() || run_.book().under_way() == 0) return;
  for (const protocol::CheckpointPart& held : run_.checkpoints().TakeHeld(run_.term().number)) {
    Record(held, held.name, now, out);
  }
}

void CheckpointReports::Record(const protocol::CheckpointPart& part, absl::string_view from,
                               absl::Time now, Effects* out) {
  if (run_.ended() || !run_.term().announced) return;
  CheckpointDriver& checkpoints = run_.checkpoints();
  if (part.unreadable) {  // The shard has read its own file, so no examination is needed.
    if (IsToRestore(part.step)) Discard(part.step, absl::StrCat(from, ": ", part.error), now, out);
    return;
  }
  // An earlier coordinator or the parent job abandoned the current checkpoint for this later one.
  if (checkpoints.Replaces(part)) {
    Abandon(absl::StrCat("the one after step ", part.step, " is under way"), now, out);
  }
  switch (checkpoints.Add(part, now)) {
    case CheckpointTracker::Progress::kFailed:
      Abandon(absl::StrCat(from, ": ", part.error), now, out);
      break;
    case CheckpointTracker::Progress::kComplete:
      checkpoints.WriteManifest(run_.messages().ManifestHead(part.step), out);
      break;
    case CheckpointTracker::Progress::kIgnored:
    case CheckpointTracker::Progress::kTaken:
      break;
  }
}

void CheckpointReports::PartExamined(ControlStreamId stream, const protocol::CheckpointPart& part,
                                     absl::Time now, Effects* out) {
  const std::string why = examinations_.Examined(stream, part, now, out);
  if (!why.empty() && IsToRestore(part.step)) Discard(part.step, why, now, out);
}

// If a newer checkpoint has replaced an unreadable one, the process that needs one will ask again.
bool CheckpointReports::IsToRestore(uint64_t step) const {
  return run_.has_checkpoints() && !run_.ended() && run_.term().announced && step != 0 &&
         step == std::max(run_.term().restore_step, run_.book().newest());
}

// A relay's own part stands for the rack's checkpoint too, which no server of this job can see.
bool CheckpointReports::IsOfRack(const protocol::Sender& sender,
                                 const protocol::CheckpointPart& part) const {
  const protocol::CheckpointManifest* const manifest = run_.checkpoints().ManifestOf(part.step);
  return run_.options().relays && manifest != nullptr &&
         part.name == protocol::WorkerPartName(sender.rank, manifest->term);
}

void CheckpointReports::Discard(uint64_t step, absl::string_view why, absl::Time now,
                                Effects* out) {
  run_.checkpoints().Discard(step);
  run_.RollBack(absl::StrCat("the checkpoint after step ", step, " cannot be used (", why, ")"),
                now, out);
}

void CheckpointReports::Written(const absl::Status& status, absl::Time now, Effects* out) {
  if (status.ok()) {
    run_.checkpoints().Complete(run_.roster().StepsInUse(), now, out);
    AskForNext(out);
  } else {
    Abandon(status.message(), now, out);
  }
}

void CheckpointReports::TakeEarlyParts(absl::Time now, Effects* out) {
  for (const protocol::CheckpointPart& part : run_.checkpoints().TakeEarly()) {
    RecordOfShard(part, part.name, now, out);
  }
}

void CheckpointReports::ShardNamedCheckpoint(ControlStreamId stream, uint64_t step) {
  if (run_.fleet().Find(stream) != 0u || !run_.is_running()) return;
  if (run_.book().under_way() == 0) run_.ExpectPresentRanks();
  run_.checkpoints().Named(step);
}

void CheckpointReports::AbandonOverdue(absl::Time now, Effects* out) {
  if (!run_.book().Overdue(now)) return;
  Abandon(absl::StrCat(run_.book().MissingParts(), " did not arrive within ",
                       absl::FormatDuration(run_.options().server.rejoin_timeout)),
          now, out);
}

void CheckpointReports::AbandonForgotten(absl::Time now, Effects* out) {
  const bool all_passed = run_.roster().AllPassed(run_.book().under_way());
  const std::string why = run_.checkpoints().WhyAbandon(all_passed, now);
  if (!why.empty()) Abandon(why, now, out);
}

void CheckpointReports::Abandon(absl::string_view why, absl::Time now, Effects* out) {
  run_.checkpoints().Abandon(why, now, out);
  AskForNext(out);
}

void CheckpointReports::AskForNext(Effects* out) {
  if (run_.is_running()) run_.checkpoints().AskForNext(out);
}

}  // namespace sluice::server
