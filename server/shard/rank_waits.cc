// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_waits.h"

namespace sluice::server {

void RankWaits::Arrived(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now) {
  if (rank >= ranks_.size()) return;
  Rank& at = ranks_[rank];
  // The request is a retry, or late work for a step that closed without this rank.
  if (step < at.step) return;
  if (step > at.step) {
    if (at.step > 0) seconds_[rank] += absl::ToDoubleSeconds(at.waited);
    at = {.step = step};
  }
  if (at.open.insert(bundle).second) at.arrived = now;
}

void RankWaits::Answered(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now) {
  if (rank >= ranks_.size()) return;
  Rank& at = ranks_[rank];
  if (step != at.step || at.open.erase(bundle) == 0 || !at.open.empty()) return;
  at.waited = now - at.arrived;
}

void RankWaits::Refused(uint32_t rank, uint64_t step, uint32_t bundle) {
  if (rank < ranks_.size() && step == ranks_[rank].step) ranks_[rank].open.erase(bundle);
}

}  // namespace sluice::server
