// SPDX-License-Identifier: Apache-2.0
#include "server/shard/checkpoint_naming.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/shard/request_fence.h"
#include "server/shard/shard_layout.h"

namespace sluice::server {

uint64_t CheckpointNaming::EarliestAfter(uint64_t step) const {
  return StepAfter(options_, step) + protocol::kNamedAhead - 1;
}

uint64_t CheckpointNaming::Name(uint64_t minimum_step, uint64_t earliest) {
  if (!due_.empty()) {
    asked_again_ = true;
    return due_.back();
  }
  wanted_ = std::max(minimum_step, earliest);
  return wanted_;
}

void CheckpointNaming::Announce(uint64_t earliest, bool is_ready, std::vector<ShardEffect>* out) {
  if (!due_.empty()) {
    if (options_.replay && asked_again_) out->emplace_back(CheckpointNamed{due_.back()});
    asked_again_ = false;
    return;
  }
  if (wanted_ == 0 || wanted_ > earliest || !is_ready) return;
  wanted_ = 0;
  last_named_ = earliest;
  due_.push_back(earliest);
  out->emplace_back(CheckpointNamed{earliest});
}

// Shard 0 names checkpoints some steps ahead, so a checkpoint that it has not named is normally
// invalid. However, this process of shard 0 may have replaced the one that named the checkpoint,
// and may have named another one since. Therefore a plausible step is accepted. The coordinator
// abandons a checkpoint that not all processes know.
absl::Status CheckpointNaming::Check(const protocol::ExchangeRequest& exchange,
                                     uint64_t open_step) const {
  const uint64_t step = exchange.checkpoint_step;
  if (step == 0 || step < open_step || IsDue(step)) return absl::OkStatus();
  if (options_.shard == 0 && !options_.replay) {
    return InvalidRequest(
        exchange,
        absl::StrCat("refers to a checkpoint after step ", step, ", but ",
                     due_.empty() ? "none is named"
                                  : absl::StrCat("the named one is after step ", due_.back())));
  }
  if (step <= EarliestAfter(exchange.step)) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("refers to a checkpoint after step ", step,
                                               ", but none is named more than ",
                                               protocol::kNamedAhead, " steps ahead"));
}

void CheckpointNaming::Learn(uint64_t step, uint64_t open_step, std::vector<ShardEffect>* out) {
  if (step == 0 || step < open_step || IsDue(step)) return;
  due_.insert(std::lower_bound(due_.begin(), due_.end(), step), step);
  if (options_.shard != 0) return;
  // A predecessor named this checkpoint and may have been the only process that knew of it.
  if (wanted_ <= step) wanted_ = 0;
  out->emplace_back(CheckpointNamed{step});
}

uint64_t CheckpointNaming::AnnouncedIn(uint64_t step) const {
  if (!due_.empty()) return due_.back();
  return last_named_ > step ? last_named_ : 0;
}

bool CheckpointNaming::IsDue(uint64_t step) const {
  return std::binary_search(due_.begin(), due_.end(), step);
}

std::optional<uint64_t> CheckpointNaming::TakeUpTo(uint64_t closed_step) {
  if (due_.empty() || due_.front() > closed_step) return std::nullopt;
  const uint64_t step = due_.front();
  due_.erase(due_.begin());
  taken_ = {taken_[1], step};
  return step;
}

absl::Status CheckpointNaming::CheckPartStep(uint64_t step) const {
  if (IsDue(step) || step == taken_[0] || step == taken_[1]) return absl::OkStatus();
  const uint64_t newest = due_.empty() ? taken_[1] : due_.back();
  if (step > newest) {
    return absl::AbortedError(absl::StrCat("shard ", options_.shard,
                                           " does not know of a checkpoint after step ", step,
                                           " yet; send it again"));
  }
  return absl::InvalidArgumentError(absl::StrCat("no checkpoint is taken after step ", step,
                                                 "; the newest one is after step ", newest));
}

}  // namespace sluice::server
