// Implements checkpoints and plans of a shard whose ranks do not wait for each other.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/async_shard.h"

namespace sluice::server {
namespace {

// A rank's clock is invalid if it is this far ahead of a checkpoint.
constexpr uint64_t kAheadMax = uint64_t{1} << 40;

}  // namespace

uint64_t AsyncShard::NameCheckpoint(uint64_t minimum_step) {
  const uint64_t furthest = *std::max_element(reached_.begin(), reached_.end());
  return checkpoints_.Name(minimum_step, std::max(checkpoints_.EarliestAfter(furthest),
                                                  checkpoints_.EarliestAfter(open_step())));
}

// Announces a checkpoint after the second step beyond the furthest rank's. No rank has begun the
// first of these two steps. Therefore all ranks learn of the checkpoint from that step's results
// and report it to all shards with their requests of the next step. A new checkpoint is announced
// only when all ranks have finished the previous one on all shards. A rank has done so once it
// begins a later step.
void AsyncShard::AnnounceCheckpoint(Effects* out) {
  const auto [least, furthest] = std::minmax_element(reached_.begin(), reached_.end());
  const uint64_t last = checkpoints_.last_named();
  checkpoints_.Announce(checkpoints_.EarliestAfter(*furthest), last == 0 || *least > last, out);
}

void AsyncShard::WriteSnapshots(Effects* out) {
  const uint64_t open = open_step();
  if (open == 0) return;
  while (const std::optional<uint64_t> due = checkpoints_.TakeUpTo(open - 1)) {
    out->push_back(WriteSnapshot{Snapshot(*due)});
  }
}

std::shared_ptr<const protocol::ShardSnapshot> AsyncShard::Snapshot(uint64_t step) {
  MoveThresholds();
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, downlink_, plan_.aggregators, plan_.replica);
  snapshot->step = step;
  snapshot->plans = plans_.Copies();
  for (size_t bundle = 0; bundle < states_.size(); ++bundle) {
    snapshot->versions.push_back(plan_.bundles[bundle].version);
    for (const Place& place : states_[bundle].places) snapshot->clocks.push_back(place.next - 1);
  }
  return snapshot;
}

absl::Status AsyncShard::CheckClocks(const protocol::ShardSnapshot& snapshot) const {
  const bool same_ranks =
      options_.restored_ranks == 0 || options_.restored_ranks == options_.incarnations.size();
  const size_t wanted = states_.size() * options_.incarnations.size();
  if (same_ranks && snapshot.clocks.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", snapshot.clocks.size(),
                                                   " clocks of ranks, expected ", wanted,
                                                   ": was its job in another mode?"));
  }
  for (const uint64_t clock : snapshot.clocks) {
    if (clock >= snapshot.step && clock - snapshot.step < kAheadMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a rank's clock is ", clock, ", in a checkpoint after step ", snapshot.step));
  }
  for (uint32_t bundle = 0; bundle < states_.size(); ++bundle) {
    if (plan_.bundles[bundle].buffers) continue;
    const uint64_t version = snapshot.versions[bundle];
    if (version >= 1 && version <= Updates(bundle) + 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("bundle ", bundle, " is at version ", version,
                                                   " after ", Updates(bundle), " updates"));
  }
  return absl::OkStatus();
}

absl::Status AsyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  // The chunks were saved with the codecs of the newest plan.
  absl::Status fits = plans_.Restore(snapshot);
  if (!fits.ok()) return fits;
  fits = RestoreParts(snapshot, options_, states_.size(), &downlink_, plan_.aggregators,
                      &plan_.replica);
  if (fits.ok()) fits = CheckClocks(snapshot);
  if (!fits.ok()) return fits;
  const size_t ranks = options_.incarnations.size();
  // If the number of ranks has changed, all ranks begin after the checkpoint's step.
  const bool same_ranks = options_.restored_ranks == 0 || options_.restored_ranks == ranks;
  for (size_t bundle = 0; bundle < states_.size(); ++bundle) {
    BundleState& state = states_[bundle];
    state.begun = true;
    plan_.bundles[bundle].version = snapshot.versions[bundle];
    state.oldest = snapshot.versions[bundle];
    for (size_t rank = 0; same_ranks && rank < ranks; ++rank) {
      state.places[rank].next = snapshot.clocks[bundle * ranks + rank] + 1;
    }
    state.least = options_.first_step;
    if (!same_ranks) continue;
    state.least = state.places[0].next;
    for (const Place& place : state.places) state.least = std::min(state.least, place.next);
  }
  return absl::OkStatus();
}

void AsyncShard::MakePlans(Effects* out) {
  if (!plans_.makes_plans()) return;
  for (const uint64_t open = open_step(); next_plan_ < open; ++next_plan_) {
    plans_.Make(next_plan_, out);
  }
}

// Adapts the measurements, because plans assume one downlink frame per step. A result contains as
// many frames as were published since the rank's last result, so the usable rate of the link is
// divided by that number.
void AsyncShard::Measured(const StepMeasurements& measured) {
  if (!plans_.makes_plans()) return;
  StepMeasurements adapted = measured;
  const double frames =
      static_cast<double>(brought_) / static_cast<double>(std::max<uint64_t>(brought_in_, 1));
  brought_ = brought_in_ = 0;
  if (frames > 1) ScaleTransfers(1, 1 / frames, &adapted);
  plans_.Measured(adapted);
}

}  // namespace sluice::server
