// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/checkpoint_tracker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::server {
namespace {

// Limit on the parts in a checkpoint. Ranks, shards and files for people together need far fewer.
constexpr size_t kPartsMax = 4096;
// Bounds the list when a disk stays full. The list drops its oldest steps, whose files were removed
// when those checkpoints were abandoned.
constexpr size_t kLitterMax = 64;

}  // namespace

std::string MissingCheckpoint(uint64_t closed, uint64_t newest, uint64_t interval) {
  if (interval == 0 || closed < newest || closed - newest <= 2 * interval) return "";
  return absl::StrCat("step ", closed, " is over and ",
                      newest == 0
                          ? "there is no checkpoint yet"
                          : absl::StrCat("the newest checkpoint is that after step ", newest),
                      ", although checkpoint.interval is ", interval);
}

CheckpointTracker::CheckpointTracker(const CheckpointTrackerOptions& options,
                                     std::vector<uint64_t> complete, std::vector<uint64_t> litter)
    : options_(options),
      complete_(std::move(complete)),
      litter_(std::move(litter)),
      over_(newest()),
      ranks_(options.world_size) {
  std::iota(ranks_.begin(), ranks_.end(), 0u);
}

void CheckpointTracker::ResetForTerm(uint32_t term) {
  if (under_way_ != 0) Abandon();
  Forget();
  ForgetEarly();
  term_ = term;
  over_ = newest();
}

void CheckpointTracker::Discard(uint64_t step) {
  if (std::erase(complete_, step) > 0) litter_.push_back(step);
}

void CheckpointTracker::DiscardAfter(uint64_t step) {
  while (newest() > step) Discard(newest());
  std::erase_if(released_, [step](uint64_t released) { return released > step; });
  over_ = std::min(over_, step);
}

void CheckpointTracker::Release(uint64_t step) {
  if (step == 0 || (!released_.empty() && step <= released_.back())) return;
  released_.push_back(step);
  if (released_.size() > kept()) released_.erase(released_.begin());
}

bool CheckpointTracker::IsKept(uint64_t step) const {
  if (std::find(held_.begin(), held_.end(), step) != held_.end()) return true;
  if (options_.in_rack) return released_.size() < kept() || step >= released_.front();
  return complete_.size() <= kept() || step >= *(complete_.end() - kept());
}

std::vector<uint64_t> CheckpointTracker::ToStay(uint64_t given_up) const {
  std::vector<uint64_t> steps = complete_;
  steps.insert(steps.end(), litter_.begin(), litter_.end());
  // The manifest of this step may be on its way to disk.
  if (under_way_ != 0) steps.push_back(under_way_);
  std::erase(steps, given_up);
  return steps;
}

bool CheckpointTracker::IsComplete(uint64_t step) const {
  return std::find(complete_.begin(), complete_.end(), step) != complete_.end();
}

uint64_t CheckpointTracker::NextRegular(uint64_t open_step) const {
  const uint64_t before = std::max(over_, open_step > 0 ? open_step - 1 : 0);
  return (before / options_.interval + 1) * options_.interval;
}

void CheckpointTracker::Named(uint64_t step) {
  if (step <= over_) return;
  asked_minimum_ = 0;
  if (under_way_ == 0) under_way_ = step;
}

CheckpointTracker::Progress CheckpointTracker::Add(const protocol::CheckpointPart& part,
                                                   absl::Time now) {
  if (part.term != term_) return Progress::kIgnored;
  // A part may arrive before shard 0 reports that it named the checkpoint.
  if (under_way_ == 0 && part.step > over_) under_way_ = part.step;
  if (all_there_ && part.step > under_way_) KeepEarly(part);
  if (part.step != under_way_ || under_way_ == 0 || all_there_) return Progress::kIgnored;
  if (!part.error.empty()) return IsNeeded(part) ? Progress::kFailed : Progress::kIgnored;
  if (parts_.size() < kPartsMax) parts_.insert_or_assign(part.name, part);
  const bool waits = options_.in_lockstep || AllShardsGave();
  if (waits && waits_since_ == absl::InfiniteFuture()) waits_since_ = now;
  all_there_ = MissingParts().empty();
  return all_there_ ? Progress::kComplete : Progress::kTaken;
}

bool CheckpointTracker::AllShardsGave() const {
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    if (!parts_.contains(protocol::ShardPartName(shard, term_))) return false;
  }
  return true;
}

// A checkpoint does not need the state of a rank that joined while the checkpoint was in progress.
bool CheckpointTracker::IsNeeded(const protocol::CheckpointPart& part) const {
  return !part.name.starts_with("worker-") ||
         std::any_of(ranks_.begin(), ranks_.end(), [&](uint32_t rank) {
           return part.name == protocol::WorkerPartName(rank, term_);
         });
}

bool CheckpointTracker::Replaces(const protocol::CheckpointPart& part) const {
  return under_way_ != 0 && !all_there_ && part.term == term_ && part.step > under_way_;
}

// The sender sends an early part only once, so the tracker keeps it. Only parts of the latest step
// are kept, because checkpoints of earlier steps were abandoned.
void CheckpointTracker::KeepEarly(const protocol::CheckpointPart& part) {
  const uint64_t kept = early_.empty() ? 0 : early_.begin()->second.step;
  if (part.step < kept) return;
  if (part.step > kept) ForgetEarly();
  if (early_.size() < kPartsMax) early_.insert_or_assign(part.name, part);
}

void CheckpointTracker::ForgetEarly() {
  if (!early_.empty()) AddLitter(early_.begin()->second.step);
  early_.clear();
}

std::vector<protocol::CheckpointPart> CheckpointTracker::TakeEarly() {
  std::vector<protocol::CheckpointPart> parts;
  for (auto& [name, part] : std::exchange(early_, {})) parts.push_back(part);
  return parts;
}

bool CheckpointTracker::Expect(std::vector<uint32_t> ranks) {
  ranks_ = std::move(ranks);
  if (all_there_ || parts_.empty() || !MissingParts().empty()) return false;
  all_there_ = true;
  return true;
}

void CheckpointTracker::Withdraw(const std::string& name, absl::Time now) {
  early_.erase(name);
  if (all_there_ || parts_.erase(name) == 0) return;
  waits_since_ = now;  // The timeout restarts, because the part must be sent again.
}

void CheckpointTracker::WithdrawRank(uint32_t rank, absl::Time now) {
  Withdraw(protocol::WorkerPartName(rank, term_), now);
  if (rank != 0) return;
  const auto is_for_people = [](const auto& part) {
    return !part.first.starts_with("worker-") && !part.first.starts_with("shard-");
  };
  std::erase_if(early_, is_for_people);
  if (!all_there_) std::erase_if(parts_, is_for_people);
}

std::vector<protocol::CheckpointPart> CheckpointTracker::parts() const {
  std::vector<protocol::CheckpointPart> parts;
  for (const auto& [name, part] : parts_) parts.push_back(part);
  return parts;
}

std::string CheckpointTracker::MissingParts() const {
  std::vector<std::string> missing;
  for (uint32_t shard = 0; shard < options_.shards; ++shard) {
    std::string name = protocol::ShardPartName(shard, term_);
    if (!parts_.contains(name)) missing.push_back(std::move(name));
  }
  for (const uint32_t rank : ranks_) {
    std::string name = protocol::WorkerPartName(rank, term_);
    if (!parts_.contains(name)) missing.push_back(std::move(name));
  }
  return absl::StrJoin(missing, ", ");
}

bool CheckpointTracker::Overdue(absl::Time now) const {
  return !all_there_ && now - waits_since_ > options_.patience;
}

std::vector<uint64_t> CheckpointTracker::Written() {
  std::erase(litter_, under_way_);
  // In a rack, the parent job names checkpoints. Files of a later one may exist already and stay.
  std::vector<uint64_t> remove;
  std::vector<uint64_t> later;
  for (const uint64_t step : litter_) {
    (options_.in_rack && step > under_way_ ? later : remove).push_back(step);
  }
  litter_ = std::move(later);
  complete_.push_back(under_way_);
  std::vector<uint64_t> stay;
  for (const uint64_t step : complete_) (IsKept(step) ? stay : remove).push_back(step);
  complete_ = std::move(stay);
  Forget();
  return remove;
}

void CheckpointTracker::Abandon() {
  AddLitter(under_way_);
  Forget();
}

void CheckpointTracker::AddLitter(uint64_t step) {
  if (litter_.size() >= kLitterMax) litter_.erase(litter_.begin());
  litter_.push_back(step);
}

void CheckpointTracker::Forget() {
  over_ = std::max(over_, under_way_);
  asked_minimum_ = 0;
  under_way_ = 0;
  all_there_ = false;
  waits_since_ = absl::InfiniteFuture();
  parts_.clear();
}

}  // namespace sluice::server
