// SPDX-License-Identifier: Apache-2.0
#include "follow/update_log.h"

#include <utility>

#include "base/check.h"

namespace sluice::follow {

void UpdateLog::Begin(const WeightsState& state) {
  patches_.clear();
  bytes_ = 0;
  newest_ = state;
}

void UpdateLog::Add(SharedUpdate patch) {
  Check(newest_ == patch->base, "a patch continues the newest version");
  newest_ = patch->result;
  bytes_ += patch->bytes.size();
  patches_.push_back(std::move(patch));
  while (bytes_ > bytes_max_) {
    bytes_ -= patches_.front()->bytes.size();
    patches_.pop_front();
  }
}

void UpdateLog::SetAnchor(const SharedUpdate& anchor) {
  std::erase_if(anchors_, [](const auto& one) { return one.expired(); });
  anchors_.push_back(anchor);
}

std::optional<size_t> UpdateLog::Find(const WeightsState& base) const {
  for (size_t i = 0; i < patches_.size(); ++i) {
    if (patches_[i]->base == base) return i;
  }
  return std::nullopt;
}

std::optional<uint64_t> UpdateLog::Behind(const WeightsState& have) const {
  if (have == newest_) return 0;
  const std::optional<size_t> at = Find(have);
  if (!at.has_value()) return std::nullopt;
  return patches_.size() - *at;
}

UpdateLog::Choice UpdateLog::NextFor(const std::optional<WeightsState>& have) const {
  if (!newest_.has_value() || have == newest_) return {};
  if (!have.has_value()) return ChooseAnchor(have);
  // A shard that was restarted repeats the steps that the follower knows, usually with equal bits.
  if (have->version > newest_->version) return {};
  if (const std::optional<size_t> at = Find(*have)) {
    return {.next = Next::kUpdate, .update = patches_[*at]};
  }
  return ChooseAnchor(have);
}

UpdateLog::Choice UpdateLog::ChooseAnchor(const std::optional<WeightsState>& have) const {
  size_t in_use = 0;
  SharedUpdate best;
  for (const std::weak_ptr<const WeightsUpdate>& one : anchors_) {
    const SharedUpdate anchor = one.lock();
    if (anchor == nullptr) continue;
    ++in_use;
    const bool leads_here = anchor->result == newest_ || Find(anchor->result).has_value();
    if (leads_here && have != anchor->result) best = anchor;
  }
  if (best != nullptr) return {.next = Next::kUpdate, .update = best};
  return {.next = in_use < kAnchorsMax ? Next::kAnchor : Next::kLater};
}

}  // namespace sluice::follow
