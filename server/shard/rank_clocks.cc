// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_clocks.h"

#include <algorithm>
#include <limits>

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
  BundleClocks begin{.least = first, .clocks = {}};
  for (const uint64_t incarnation : options_.incarnations) {
    const bool present = incarnation != 0 || !options_.exchange.elastic();
    begin.clocks.push_back(present ? Clock{.next = first} : Clock{.counts = false});
  }
  bundles_.assign(bundles, begin);
}

std::string RankClocks::WhyNot(uint32_t bundle, uint32_t rank, uint64_t step) const {
  if (const std::optional<uint64_t> next = ClockOf(bundle, rank)) {
    if (step <= *next) return "";
    return absl::StrCat("is ahead of step ", *next, ", which this rank has not sent yet");
  }
  // The newcomer's checkpoint is after a step that all members have finished.
  if (step >= options_.first_step && step <= least(bundle)) return "";
  return absl::StrCat("is a newcomer's first step, which must be ", options_.first_step, " to ",
                      least(bundle));
}

uint64_t RankClocks::open_step() const {
  uint64_t open = bundles_.empty() ? options_.first_step : bundles_.front().least;
  for (const BundleClocks& bundle : bundles_) open = std::min(open, bundle.least);
  return open;
}

void RankClocks::FindLeast(BundleClocks* bundle) {
  std::optional<uint64_t> least;
  for (const Clock& clock : bundle->clocks) {
    if (clock.counts) least = std::min(least.value_or(*clock.next), *clock.next);
  }
  bundle->least = least.value_or(bundle->least);
}

void RankClocks::Advance(uint32_t bundle, uint32_t rank, uint64_t step) {
  Clock& clock = bundles_[bundle].clocks[rank];
  clock.next = StepAfter(options_, step);
  clock.counts = clock.counts || *clock.next >= least(bundle);
  FindLeast(&bundles_[bundle]);
}

bool RankClocks::IsWithinBound(uint32_t bundle, uint64_t step) const {
  return step == 0 || !job::TraitsOf(options_.exchange.mode).staleness_bounded ||
         step < bundles_[bundle].least + options_.exchange.staleness;
}

uint32_t RankClocks::members(uint32_t bundle) const {
  const std::vector<Clock>& clocks = bundles_[bundle].clocks;
  return static_cast<uint32_t>(
      std::count_if(clocks.begin(), clocks.end(), [](const Clock& clock) { return clock.counts; }));
}

void RankClocks::Reach(uint32_t rank, uint64_t step) {
  reached_[rank] = std::max(reached_[rank], step);
}

void RankClocks::Replace(uint32_t rank) {
  reached_[rank] = 0;
  if (!options_.exchange.elastic()) return;
  for (BundleClocks& bundle : bundles_) {
    bundle.clocks[rank] = {.next = std::nullopt, .counts = false};
    FindLeast(&bundle);
  }
}

uint64_t RankClocks::least_reached() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint32_t rank = 0; rank < reached_.size(); ++rank) {
    if (Counts(rank)) least = std::min(least, reached_[rank]);
  }
  return least;
}

uint64_t RankClocks::furthest_reached() const {
  return *std::max_element(reached_.begin(), reached_.end());
}

std::vector<uint64_t> RankClocks::Save(uint64_t step) const {
  std::vector<uint64_t> saved;
  for (const BundleClocks& bundle : bundles_) {
    for (const Clock& clock : bundle.clocks) saved.push_back(clock.counts ? *clock.next - 1 : step);
  }
  return saved;
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
  auto saved = snapshot.clocks.begin();
  for (BundleClocks& bundle : bundles_) {
    for (Clock& clock : bundle.clocks) {
      if (clock.counts) clock.next = *saved + 1;
      ++saved;
    }
    FindLeast(&bundle);
  }
}

}  // namespace sluice::server
