// Implements rollback to the newest complete checkpoint, and the creation of the next checkpoint.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {
namespace {

constexpr size_t kRequestsMax = 256;  // Maximum number of waiting RequestCheckpoint calls.
// GiveUpForgotten waits this many leases after all members have passed the checkpoint's step.
constexpr int kForgottenLeases = 6;

std::string PlaceOf(uint64_t step) { return step == 0 ? "its start" : absl::StrCat("step ", step); }

}  // namespace

protocol::RunRecord Coordinator::Record(bool finished) const {
  protocol::RunRecord record{.job_name = options_.job_name,
                             .job_uid = options_.job_uid,
                             .term = term_,
                             .finished = finished,
                             .coordinator_incarnation = incarnation_};
  // A rack does not repair losses, but its next coordinator must report the end of the run.
  const bool needed = repairs_losses() || (finished && options_.in_rack);
  if (!needed || !announced_) return record;
  record.generation = generation_;
  record.restore_step = restore_step_;
  record.parameters_agree = parameters_agree_;
  record.table = table_;
  for (const Member& member : members_) {
    record.members.push_back({.nonce = member.join.nonce,
                              .incarnation = member.incarnation,
                              .host = member.join.host,
                              .pid = member.join.pid,
                              .parameters_sha256 = member.join.parameters_sha256});
  }
  return record;
}

void Coordinator::Begin(Effects* out) {
  if (!has_checkpoints()) return;
  // Persists even without other changes, so that no later coordinator reuses this number.
  out->push_back(PersistRun{Record(phase_ == protocol::JobPhase::kFinished)});
  if (phase_ == protocol::JobPhase::kFinished) {
    out->push_back(Notice{.text = "the run has finished; workers that do not know it yet are told",
                          .fields = {.event = "job_finished"}});
    return;
  }
  if (phase_ == protocol::JobPhase::kRunning) {
    out->push_back(Notice{
        .text = absl::StrCat("the coordinator was restarted; term ", term_,
                             " continues, with the newest checkpoint at ", PlaceOf(book_.newest())),
        .fields = {.event = "coordinator_restarted"}});
    return;
  }
  if (phase_ != protocol::JobPhase::kRecovering) return;
  last_rollback_ =
      absl::StrCat("the coordinator was restarted; the job goes back to ", PlaceOf(restore_step_));
  out->push_back(Notice{.text = absl::StrCat(last_rollback_, " (term ", term_, ")"),
                        .warning = true,
                        .fields = {.event = "rollback", .step = restore_step_}});
}

void Coordinator::RollBack(absl::string_view cause, absl::Time now, Effects* out) {
  if (ended()) return;
  // Heartbeats lag, so a checkpoint may be further ahead than the reported steps.
  const uint64_t was_at = std::max({furthest_step_, restore_step_, book_.newest()});
  term_ += 1;
  if (options_.elastic.has_value()) begin_with_ = std::max(Present(), options_.elastic->least);
  announced_ = false;
  generation_ = 0;
  out->push_back(PersistRun{Record(/*finished=*/false)});
  restore_step_ = book_.newest();
  parent_.ResetForTerm();
  rollbacks_ += 1;
  last_rollback_ =
      options_.in_rack
          ? absl::StrCat(cause, "; the rack starts again at the step that the parent job names")
      : knows_position_ ? absl::StrCat(cause, "; the job goes back from step ", was_at, " to ",
                                       PlaceOf(restore_step_), ": ",
                                       was_at - std::min(was_at, restore_step_), " steps are lost")
                        : absl::StrCat(cause, "; the job goes back to ", PlaceOf(restore_step_));
  out->push_back(Notice{.text = absl::StrCat(last_rollback_, " (term ", term_, ")"),
                        .warning = true,
                        .fields = {.event = "rollback", .step = restore_step_}});
  AnswerRequests(absl::UnavailableError(last_rollback_), out);
  if (book_.under_way() != 0) {
    out->push_back(DropCheckpoint{book_.under_way()});
    DropAtShards(book_.under_way() + 1, out, book_.under_way());
  }
  book_.ResetForTerm(term_);
  phase_ = protocol::JobPhase::kRecovering;
  waiting_since_ = now;
  audit_.Clear();
  ForgetMembers();
  fleet_.BeginTerm(/*is_first=*/false);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) {
    fleet_.Suspend(shard, protocol::SuspendShard{term_, last_rollback_}, out);
  }
  StartWhenComplete(now, out);
}

// Keeps members whose Join still waits, because these members have not begun the term.
void Coordinator::ForgetMembers() {
  for (Member& member : members_) {
    if (member.token != 0) {
      member.late_joiner = false;  // The member begins the next term with all others.
      continue;
    }
    Member forgotten;
    forgotten.successor_token = member.successor_token;
    forgotten.successor = std::move(member.successor);
    member = std::move(forgotten);
  }
}

absl::Status Coordinator::WorkerPart(const protocol::Sender& sender,
                                     const protocol::CheckpointPart& part, absl::Time now,
                                     Effects* out) {
  if (!has_checkpoints()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_name, " has no checkpoints"));
  }
  if (OfEarlierTerm(sender)) return absl::OkStatus();  // No checkpoint needs the part any more.
  const absl::StatusOr<Member*> member = FindMember(sender);
  if (!member.ok()) return member.status();
  const bool own = part.name == protocol::WorkerPartName(sender.rank, part.term);
  // A report with an error may name any file of the checkpoint that was to be restored.
  if (!own && part.error.empty() &&
      (part.name.starts_with("worker-") || part.name.starts_with("shard-"))) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(**member), " reported ", part.name, ", which is not its own"));
  }
  if (part.server >= fleet_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(**member), " reported ", part.name,
                                                   " with server ", part.server, " of ",
                                                   fleet_.size()));
  }
  // A member that saves a part of a later step has read the checkpoint that it restored.
  if (part.step > (*member)->restoring_step) (*member)->restoring_step = 0;
  RecordPart(part, Describe(**member), now, out);
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
  if (ended() || !announced_) return;
  if (part.unreadable) {
    // If a newer checkpoint has replaced this one, the process that needs one will ask again.
    if (part.step == 0 || part.step != std::max(restore_step_, book_.newest())) return;
    book_.Discard(part.step);
    RollBack(absl::StrCat("the checkpoint after step ", part.step, " cannot be used (", from, ": ",
                          part.error, ")"),
             now, out);
    return;
  }
  // An earlier coordinator or the parent job abandoned the current checkpoint for this later one.
  if (book_.Replaces(part)) {
    AbandonCheckpoint(absl::StrCat("the one after step ", part.step, " is under way"), now, out);
  }
  switch (book_.Add(part, now)) {
    case CheckpointTracker::Progress::kFailed:
      AbandonCheckpoint(absl::StrCat(from, ": ", part.error), now, out);
      break;
    case CheckpointTracker::Progress::kComplete:
      WriteManifest(part.step, out);
      break;
    case CheckpointTracker::Progress::kIgnored:
    case CheckpointTracker::Progress::kTaken:
      break;
  }
}

void Coordinator::WriteManifest(uint64_t step, Effects* out) {
  protocol::CheckpointManifest manifest{.job_name = options_.job_name,
                                        .job_hash = options_.job_hash,
                                        .job_uid = options_.job_uid,
                                        .term = term_,
                                        .step = step,
                                        .world_size = options_.world_size,
                                        .shards = options_.shards,
                                        .table_hash = protocol::HashTensorTable(table_),
                                        .layout = options_.layout,
                                        .software_version = options_.software_version,
                                        .at_shards = options_.checkpoints_at_shards,
                                        .parts = book_.parts()};
  manifests_.insert_or_assign(step, manifest);
  out->push_back(WriteCheckpoint{std::move(manifest)});
}

void Coordinator::CheckpointWritten(uint64_t step, const absl::Status& status, absl::Time now,
                                    Effects* out) {
  if (book_.under_way() != step || step == 0) return;  // The checkpoint was abandoned.
  if (status.ok()) {
    CompleteCheckpoint(step, now, out);
  } else {
    AbandonCheckpoint(status.message(), now, out);
  }
  for (const protocol::CheckpointPart& part : book_.TakeEarly())
    RecordPart(part, part.name, now, out);
}

void Coordinator::CompleteCheckpoint(uint64_t step, absl::Time now, Effects* out) {
  book_.Hold(StepsInUse());
  for (const uint64_t old : book_.Written()) out->push_back(DropCheckpoint{old});
  // Files of later steps may need removal too. But the job may reach those steps again, and the new
  // files may exist before the command arrives. A later command removes those files.
  DropAtShards(step + 1, out);
  ForgetManifests();
  newest_since_ = now;
  given_up_in_a_row_ = 0;
  checkpoint_trouble_.clear();
  out->push_back(Notice{.text = absl::StrCat("the checkpoint after step ", step, " is complete"),
                        .fields = {.event = "checkpoint_complete", .step = step}});
  AnswerRequests(step, out);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) ReleaseResultsOf(shard, out);
  audit_.ForgetCompleteUpTo(step, Present());
  AskForNextCheckpoint(out);
  StartReplays(now, out);
  if (options_.elastic.has_value()) AdmitLearners(now, out);
}

// Returns the steps of the checkpoints that members are still reading, even if newer ones exist.
std::vector<uint64_t> Coordinator::StepsInUse() const {
  std::vector<uint64_t> steps;
  for (const Member& member : members_) {
    if (member.present && member.restoring_step > 0) steps.push_back(member.restoring_step);
  }
  return steps;
}

void Coordinator::ReleaseResultsOf(uint32_t shard, Effects* out) {
  if (!repairs_losses() || book_.newest() == 0) return;
  fleet_.ReleaseResults(shard, book_.newest(), out);
}

void Coordinator::AbandonCheckpoint(absl::string_view why, absl::Time now, Effects* out) {
  const uint64_t step = book_.under_way();
  book_.Abandon();
  ++given_up_in_a_row_;
  given_up_at_ = now;
  const std::string text =
      absl::StrCat("the checkpoint after step ", step, " was abandoned: ", why);
  checkpoint_trouble_ = text;
  out->push_back(Notice{
      .text =
          absl::StrCat(text, "; training continues; newest usable checkpoint: ",
                       book_.newest() == 0 ? "none" : absl::StrCat("after step ", book_.newest())),
      .warning = true,
      .fields = {.event = "checkpoint_given_up", .step = step}});
  out->push_back(DropCheckpoint{step});
  DropAtShards(step + 1, out, step);
  ForgetManifests();
  AnswerRequests(absl::UnavailableError(text), out);
  AskForNextCheckpoint(out);
}

// The command lists all checkpoints to keep, so a shard that missed one catches up with the next.
void Coordinator::DropAtShards(uint64_t before, Effects* out, uint64_t given_up) {
  if (!options_.checkpoints_at_shards) return;
  fleet_.KeepCheckpoints({book_.ToStay(given_up), before}, out);
}

void Coordinator::ForgetManifests() {
  std::erase_if(manifests_, [this](const auto& entry) { return !book_.IsComplete(entry.first); });
}

const protocol::CheckpointManifest* Coordinator::ManifestOf(uint64_t step) const {
  const auto found = manifests_.find(step);
  return found == manifests_.end() ? nullptr : &found->second;
}

void Coordinator::AddRestoreParts(protocol::JoinGrant* grant) const {
  const protocol::CheckpointManifest* const manifest = ManifestOf(grant->restore_step);
  if (manifest == nullptr) return;
  grant->restore_world_size = manifest->world_size;
  if (!manifest->at_shards) return;
  // In an elastic job, a late joiner may continue with the parameters of any rank.
  const bool own_only =
      manifest->world_size == options_.world_size && !options_.elastic.has_value();
  std::map<std::string, const protocol::CheckpointPart*> parts;
  for (const protocol::CheckpointPart& part : manifest->parts) parts.emplace(part.name, &part);
  for (uint32_t rank = 0; rank < manifest->world_size; ++rank) {
    if (own_only && rank != grant->rank) continue;
    const auto part = parts.find(protocol::WorkerPartName(rank, manifest->term));
    // A manifest without the part is incomplete; the process that restores it reports that.
    if (part != parts.end()) grant->restore_parts.push_back(*part->second);
  }
}

void Coordinator::AddRestorePart(uint32_t shard, protocol::StartShard* start) const {
  const protocol::CheckpointManifest* const manifest = ManifestOf(start->restore_step);
  if (manifest == nullptr) return;
  start->restore_world_size = manifest->world_size;
  if (!manifest->at_shards) return;
  const std::string name = protocol::ShardPartName(shard, manifest->term);
  for (const protocol::CheckpointPart& part : manifest->parts) {
    if (part.name == name) start->restore_part = part;
  }
}

void Coordinator::NoteOtherWorldSize(Effects* out) const {
  const protocol::CheckpointManifest* const manifest = ManifestOf(restore_step_);
  if (manifest == nullptr || manifest->world_size == options_.world_size) return;
  out->push_back(
      Notice{.text = absl::StrCat(
                 "the run had ", manifest->world_size, " workers and continues with ",
                 options_.world_size, " after step ", restore_step_,
                 ": all begin with the mean of the ranks' residuals, and the results are not bit-"
                 "identical to those of ",
                 manifest->world_size, " workers"),
             .warning = true,
             .fields = {.event = "workers_changed", .step = restore_step_}});
}

void Coordinator::ShardNamedCheckpoint(ControlStreamId stream, uint64_t step) {
  if (fleet_.Find(stream) != 0u || phase_ != protocol::JobPhase::kRunning) return;
  if (book_.under_way() == 0) ExpectPresentRanks();
  book_.Named(step);
  named_step_ = step;
}

// Shard 0 may only name a checkpoint for a step that no worker has reached. While shard 0 replays
// steps, it does not know how far the workers are.
bool Coordinator::MayNameCheckpoints() const {
  const ShardSeat& seat = fleet_[0];
  return seat.is_attached() && (seat.state == ShardState::kRuns || !repairs_losses());
}

// Abandons a checkpoint of an earlier coordinator if its parts do not arrive. If a part's failure
// was reported to that coordinator, the failure is never reported again.
void Coordinator::GiveUpForgotten(absl::Time now, Effects* out) {
  const uint64_t step = book_.under_way();
  const bool forgotten =
      step != 0 && step != named_step_ && !book_.being_written() && fleet_.AllClosed(step) &&
      std::all_of(members_.begin(), members_.end(),
                  [&](const Member& m) { return !m.present || ExchangedStep(m.progress) >= step; });
  passed_since_ = forgotten ? std::min(passed_since_, now) : absl::InfiniteFuture();
  if (!forgotten || now - passed_since_ < kForgottenLeases * options_.lease) return;
  AbandonCheckpoint(absl::StrCat(book_.MissingParts(), " did not arrive within ",
                                 absl::FormatDuration(kForgottenLeases * options_.lease),
                                 ", and the coordinator that requested it was replaced"),
                    now, out);
}

void Coordinator::ShardNotReproducible(ControlStreamId stream, uint32_t rank,
                                       absl::string_view reason, absl::Time now, Effects* out) {
  if (!fleet_.Find(stream).has_value() || rank >= members_.size() ||
      phase_ != protocol::JobPhase::kRunning)
    return;
  RollBack(reason, now, out);
}

void Coordinator::AskForNextCheckpoint(Effects* out) {
  if (phase_ != protocol::JobPhase::kRunning) return;
  AskForCheckpoint(book_.NextRegular(fleet_[0].health.highest_open_step), out);
}

void Coordinator::AskForCheckpoint(uint64_t minimum_step, Effects* out) {
  if (options_.in_rack) return;
  book_.Asked(minimum_step);
  if (!MayNameCheckpoints()) return;  // Shard 0 is asked again when it has caught up.
  fleet_.NameCheckpoint(minimum_step, out);
}

void Coordinator::RequestCheckpoint(CheckpointToken token, Effects* out) {
  absl::Status refused;
  if (!has_checkpoints()) {
    refused = absl::FailedPreconditionError(absl::StrCat(
        "job ", options_.job_name, " has no checkpoints; its file needs a `checkpoint` section"));
  } else if (options_.in_rack) {
    refused = absl::FailedPreconditionError(
        "this is a relay, and shard 0 of the parent job names checkpoints: ask that shard");
  } else if (ended()) {
    refused = absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_name, " is ", ToString(phase_)));
  } else if (phase_ != protocol::JobPhase::kRunning) {
    refused = absl::UnavailableError(absl::StrCat(
        "job ", options_.job_name, " is ", ToString(phase_), "; there is nothing new to save"));
  } else if (requests_.size() >= kRequestsMax) {
    refused = absl::ResourceExhaustedError(
        absl::StrCat(kRequestsMax, " calls wait for a checkpoint already"));
  }
  if (!refused.ok()) {
    out->emplace_back(AnswerCheckpoint{token, refused});
    return;
  }
  requests_.insert(token);
  if (book_.under_way() == 0 && book_.asked_minimum() != kAtOnce) AskForCheckpoint(kAtOnce, out);
}

void Coordinator::AnswerRequests(const absl::StatusOr<uint64_t>& step, Effects* out) {
  for (const CheckpointToken token : requests_) out->emplace_back(AnswerCheckpoint{token, step});
  requests_.clear();
}

}  // namespace sluice::server
