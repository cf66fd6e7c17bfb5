// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_driver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

constexpr size_t kRequestsMax = 256;  // Maximum number of waiting requests.
constexpr uint64_t kAtOnce = 1;       // Minimum step of a request for a checkpoint now.
// WhyAbandon waits this many leases after all members have passed the checkpoint's step.
constexpr int kForgottenLeases = 6;
// After an abandoned checkpoint, newcomers wait one lease for the next checkpoint. The wait doubles
// with each further abandoned checkpoint, up to 16 leases.
constexpr uint32_t kPauseDoublingsMax = 4;

CheckpointTrackerOptions TrackerOptionsOf(const CoordinatorOptions& options) {
  return {.interval = HasCheckpoints(options) ? options.checkpoint.interval : 0,
          .keep = options.checkpoint.keep,
          .world_size = options.world_size,
          .shards = options.shards,
          .patience = options.server.rejoin_timeout,
          .in_lockstep = options.exchange.in_lockstep(),
          .in_rack = options.in_rack};
}

std::vector<uint64_t> StepsOf(const std::vector<protocol::CheckpointManifest>& manifests) {
  std::vector<uint64_t> steps;
  steps.reserve(manifests.size());
  for (const protocol::CheckpointManifest& manifest : manifests) steps.push_back(manifest.step);
  return steps;
}

}  // namespace

CheckpointDriver::CheckpointDriver(const CoordinatorOptions& options, ShardFleet* fleet)
    : options_(options),
      fleet_(*fleet),
      tracker_(TrackerOptionsOf(options), StepsOf(options.checkpoints),
               options.damaged_checkpoints) {
  for (const protocol::CheckpointManifest& manifest : options.checkpoints) {
    manifests_.emplace(manifest.step, manifest);
  }
}

void CheckpointDriver::RollBack(uint32_t term, absl::string_view cause, Effects* out) {
  AnswerRequests(absl::UnavailableError(cause), out);
  const uint64_t step = tracker_.under_way();
  if (step != 0) {
    out->push_back(DropCheckpoint{step});
    DropAtShards(step + 1, out, step);
  }
  BeginTerm(term);
}

void CheckpointDriver::ContinueFrom(uint64_t step) {
  tracker_.DiscardAfter(step);
  tracker_.Release(step);
  ForgetManifests();
}

void CheckpointDriver::ShiftTimes(absl::Duration gap) {
  passed_since_ += gap;
  tracker_.Shift(gap);
}

void CheckpointDriver::AskFor(uint64_t minimum_step, Effects* out) {
  if (options_.in_rack) return;
  tracker_.Asked(minimum_step);
  if (MayNameCheckpoints()) fleet_.NameCheckpoint(minimum_step, out);
}

void CheckpointDriver::AskForNext(Effects* out) {
  AskFor(tracker_.NextRegular(fleet_[0].health.highest_open_step), out);
}

void CheckpointDriver::AskAgain(Effects* out) {
  if (tracker_.under_way() != 0) return;
  if (requests_.empty()) {
    AskForNext(out);
  } else {
    AskFor(tracker_.asked_minimum(), out);
  }
}

// A checkpoint costs all members time, and a disk that was full may still be full.
void CheckpointDriver::AskForNewcomers(absl::Time now, Effects* out) {
  if (tracker_.under_way() != 0 || tracker_.asked_minimum() == kAtOnce) return;
  const uint32_t doublings = std::min(std::max(given_up_in_a_row_, 1u) - 1, kPauseDoublingsMax);
  const absl::Duration pause = options_.server.lease_timeout * (1 << doublings);
  if (given_up_in_a_row_ > 0 && now - given_up_at_ < pause) return;
  AskFor(kAtOnce, out);
}

void CheckpointDriver::Request(CheckpointToken token, protocol::JobPhase phase, Effects* out) {
  const bool has_ended =
      phase == protocol::JobPhase::kFinished || phase == protocol::JobPhase::kFailed;
  absl::Status refused;
  if (!tracker_.enabled()) {
    refused = absl::FailedPreconditionError(absl::StrCat(
        "job ", options_.job_name, " has no checkpoints; its file needs a `checkpoint` section"));
  } else if (options_.in_rack) {
    refused = absl::FailedPreconditionError(
        "this is a relay, and shard 0 of the parent job names checkpoints: ask that shard");
  } else if (has_ended) {
    refused = absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_name, " is ", ToString(phase)));
  } else if (phase != protocol::JobPhase::kRunning) {
    refused = absl::UnavailableError(absl::StrCat(
        "job ", options_.job_name, " is ", ToString(phase), "; there is nothing new to save"));
  } else if (requests_.size() >= kRequestsMax) {
    refused = absl::ResourceExhaustedError(
        absl::StrCat(kRequestsMax, " calls wait for a checkpoint already"));
  }
  if (!refused.ok()) {
    out->emplace_back(AnswerCheckpoint{token, refused});
    return;
  }
  requests_.insert(token);
  if (tracker_.under_way() == 0 && tracker_.asked_minimum() != kAtOnce) AskFor(kAtOnce, out);
}

void CheckpointDriver::AnswerRequests(const absl::StatusOr<uint64_t>& step, Effects* out) {
  for (const CheckpointToken token : requests_) out->emplace_back(AnswerCheckpoint{token, step});
  requests_.clear();
}

void CheckpointDriver::Named(uint64_t step) {
  tracker_.Named(step);
  named_step_ = step;
}

void CheckpointDriver::Withdraw(const std::string& name, absl::Time now) {
  held_.Remove(name);
  tracker_.Withdraw(name, now);
}

void CheckpointDriver::WithdrawRank(uint32_t rank, absl::Time now) {
  held_.RemoveRank(rank);
  tracker_.WithdrawRank(rank, now);
}

void CheckpointDriver::WriteManifest(protocol::CheckpointManifest manifest, Effects* out) {
  manifest.parts = tracker_.parts();
  manifests_.insert_or_assign(manifest.step, manifest);
  out->push_back(WriteCheckpoint{std::move(manifest)});
}

void CheckpointDriver::Complete(std::vector<uint64_t> in_use, absl::Time now, Effects* out) {
  const uint64_t step = tracker_.under_way();
  tracker_.Hold(std::move(in_use));
  for (const uint64_t old : tracker_.Written()) out->push_back(DropCheckpoint{old});
  // Files of later steps may need removal too. But the job may reach those steps again, and the new
  // files may exist before the command arrives. A later command removes those files.
  DropAtShards(step + 1, out);
  ForgetManifests();
  newest_since_ = now;
  given_up_in_a_row_ = 0;
  trouble_.clear();
  out->push_back(Notice{.text = absl::StrCat("the checkpoint after step ", step, " is complete"),
                        .fields = {.event = "checkpoint_complete", .step = step}});
  AnswerRequests(step, out);
  for (uint32_t shard = 0; shard < fleet_.size(); ++shard) ReleaseResults(shard, out);
}

void CheckpointDriver::ReleaseResults(uint32_t shard, Effects* out) {
  if (!RepairsLosses(options_) || tracker_.newest() == 0) return;
  fleet_.ReleaseResults(shard, tracker_.newest(), out);
}

void CheckpointDriver::Abandon(absl::string_view why, absl::Time now, Effects* out) {
  const uint64_t step = tracker_.under_way();
  tracker_.Abandon();
  ++given_up_in_a_row_;
  given_up_at_ = now;
  const std::string text =
      absl::StrCat("the checkpoint after step ", step, " was abandoned: ", why);
  trouble_ = text;
  out->push_back(
      Notice{.text = absl::StrCat(
                 text, "; training continues; newest usable checkpoint: ",
                 tracker_.newest() == 0 ? "none" : absl::StrCat("after step ", tracker_.newest())),
             .warning = true,
             .fields = {.event = "checkpoint_given_up", .step = step}});
  out->push_back(DropCheckpoint{step});
  DropAtShards(step + 1, out, step);
  ForgetManifests();
  AnswerRequests(absl::UnavailableError(text), out);
}

void CheckpointDriver::WarnOfMissing(Effects* out) {
  uint64_t closed = 0;
  for (const ShardSeat& seat : fleet_) closed = std::max(closed, seat.health.highest_closed_step);
  const uint64_t newest = tracker_.newest();
  if (missing_since_ == newest) return;
  std::string text = MissingCheckpoint(closed, newest, options_.checkpoint.interval);
  if (text.empty()) return;
  missing_since_ = newest;
  out->push_back(Notice{.text = std::move(text),
                        .warning = true,
                        .fields = {.event = "checkpoint_missing", .step = closed}});
}

// Abandons a checkpoint of an earlier coordinator if its parts do not arrive. If a part's failure
// was reported to that coordinator, the failure is never reported again.
std::string CheckpointDriver::WhyAbandon(bool all_passed, absl::Time now) {
  const uint64_t step = tracker_.under_way();
  const bool forgotten = step != 0 && step != named_step_ && !tracker_.being_written() &&
                         fleet_.AllClosed(step) && all_passed;
  passed_since_ = forgotten ? std::min(passed_since_, now) : absl::InfiniteFuture();
  const absl::Duration limit = kForgottenLeases * options_.server.lease_timeout;
  if (!forgotten || now - passed_since_ < limit) return "";
  return absl::StrCat(tracker_.MissingParts(), " did not arrive within ",
                      absl::FormatDuration(limit),
                      ", and the coordinator that requested it was replaced");
}

void CheckpointDriver::DropAllAtShards(Effects* out) {
  DropAtShards(std::numeric_limits<uint64_t>::max(), out);
}

// Shard 0 may only name a checkpoint for a step that no worker has reached. While shard 0 replays
// steps, it does not know how far the workers are.
bool CheckpointDriver::MayNameCheckpoints() const {
  const ShardSeat& seat = fleet_[0];
  return seat.is_attached() && (seat.state == ShardState::kRuns || !RepairsLosses(options_));
}

// The command lists all checkpoints to keep, so a shard that missed one catches up with the next.
void CheckpointDriver::DropAtShards(uint64_t before, Effects* out, uint64_t given_up) {
  if (!options_.checkpoint.at_shards()) return;
  fleet_.KeepCheckpoints({tracker_.ToStay(given_up), before}, out);
}

void CheckpointDriver::ForgetManifests() {
  std::erase_if(manifests_,
                [this](const auto& entry) { return !tracker_.IsComplete(entry.first); });
}

const protocol::CheckpointManifest* CheckpointDriver::ManifestOf(uint64_t step) const {
  const auto found = manifests_.find(step);
  return found == manifests_.end() ? nullptr : &found->second;
}

void CheckpointDriver::AddRestoreParts(protocol::JoinGrant* grant) const {
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

void CheckpointDriver::AddRestorePart(uint32_t shard, protocol::StartShard* start) const {
  const protocol::CheckpointManifest* const manifest = ManifestOf(start->restore_step);
  if (manifest == nullptr) return;
  start->restore_world_size = manifest->world_size;
  if (!manifest->at_shards) return;
  std::map<std::string, const protocol::CheckpointPart*> parts;
  for (const protocol::CheckpointPart& part : manifest->parts) parts.emplace(part.name, &part);
  // A part that is not listed stays empty; the shard that restores it reports that.
  const auto find = [&](uint32_t former) {
    const auto part = parts.find(protocol::ShardPartName(former, manifest->term));
    return part == parts.end() ? protocol::CheckpointPart() : *part->second;
  };
  if (manifest->shards == fleet_.size()) {
    start->restore_part = find(shard);
    return;
  }
  for (uint32_t former = 0; former < manifest->shards; ++former) {
    const protocol::CheckpointPart part = find(former);
    const ShardSeat& seat = fleet_[protocol::ServerOf(part, fleet_.size())];
    start->former_states.push_back({part, seat.arrival.address});
  }
}

}  // namespace sluice::server
