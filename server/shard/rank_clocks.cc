#include "server/shard/rank_clocks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/shard/shard_layout.h"

namespace sluice::server {
namespace {

// A rank's clock is invalid if it is this far ahead of a checkpoint.
constexpr uint64_t kAheadMax = uint64_t{1} << 40;

}  // namespace

RankClocks::RankClocks(const ShardOptions* options, size_t bundles)
    : options_(*options), reached_(options->incarnations.size()) {
  const uint64_t first = options_.parameters_agree ? options_.first_step : 0;
  bundles_.assign(bundles, {.least = first, .next = std::vector<uint64_t>(reached_.size(), first)});
}

uint64_t RankClocks::open_step() const {
  uint64_t open = bundles_.empty() ? options_.first_step : bundles_.front().least;
  for (const BundleClocks& bundle : bundles_) open = std::min(open, bundle.least);
  return open;
}

void RankClocks::Advance(uint32_t bundle, uint32_t rank, uint64_t step) {
  BundleClocks& clocks = bundles_[bundle];
  clocks.next[rank] = StepAfter(options_, step);
  clocks.least = *std::min_element(clocks.next.begin(), clocks.next.end());
}

bool RankClocks::IsWithinBound(uint32_t bundle, uint64_t step) const {
  return step == 0 || !job::TraitsOf(options_.exchange.mode).staleness_bounded ||
         step < bundles_[bundle].least + options_.exchange.staleness;
}

void RankClocks::Reach(uint32_t rank, uint64_t step) {
  reached_[rank] = std::max(reached_[rank], step);
}

uint64_t RankClocks::least_reached() const {
  return *std::min_element(reached_.begin(), reached_.end());
}

uint64_t RankClocks::furthest_reached() const {
  return *std::max_element(reached_.begin(), reached_.end());
}

std::vector<uint64_t> RankClocks::Save() const {
  std::vector<uint64_t> clocks;
  for (const BundleClocks& bundle : bundles_) {
    for (const uint64_t next : bundle.next) clocks.push_back(next - 1);
  }
  return clocks;
}

bool RankClocks::HasRanksOfSnapshot() const {
  return options_.restored_ranks == 0 || options_.restored_ranks == reached_.size();
}

absl::Status RankClocks::CheckRestorable(const protocol::ShardSnapshot& snapshot) const {
  const size_t wanted = bundles_.size() * reached_.size();
  if (HasRanksOfSnapshot() && snapshot.clocks.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", snapshot.clocks.size(),
                                                   " clocks of ranks, expected ", wanted,
                                                   ": was its job in another mode?"));
  }
  for (const uint64_t clock : snapshot.clocks) {
    if (clock >= snapshot.step && clock - snapshot.step < kAheadMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a rank's clock is ", clock, ", in a checkpoint after step ", snapshot.step));
  }
  return absl::OkStatus();
}

void RankClocks::Restore(const protocol::ShardSnapshot& snapshot) {
  if (!HasRanksOfSnapshot()) return;
  auto clock = snapshot.clocks.begin();
  for (BundleClocks& bundle : bundles_) {
    for (uint64_t& next : bundle.next) next = *clock++ + 1;
    bundle.least = *std::min_element(bundle.next.begin(), bundle.next.end());
  }
}

}  // namespace sluice::server
