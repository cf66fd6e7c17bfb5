// Implements checkpoints of a shard whose ranks do not wait for each other.
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
  if (!due_.empty()) return due_.back();
  const uint64_t furthest = *std::max_element(reached_.begin(), reached_.end());
  wanted_checkpoint_ =
      std::max({minimum_step, StepAfter(StepAfter(furthest)), StepAfter(StepAfter(open_step()))});
  return wanted_checkpoint_;
}

// Announces a checkpoint after the second step beyond the furthest rank's. No rank has begun the
// first of these two steps. Therefore all ranks learn of the checkpoint from that step's results
// and report it to all shards with their requests of the next step. A new checkpoint is announced
// only when all ranks have finished the previous one on all shards. A rank has done so once it
// begins a later step.
void AsyncShard::AnnounceCheckpoint(Effects* out) {
  if (wanted_checkpoint_ == 0 || !due_.empty()) return;
  const auto [least, furthest] = std::minmax_element(reached_.begin(), reached_.end());
  const uint64_t earliest = StepAfter(StepAfter(*furthest));
  if (wanted_checkpoint_ > earliest || (last_named_ > 0 && *least <= last_named_)) return;
  wanted_checkpoint_ = 0;
  last_named_ = earliest;
  due_.push_back(earliest);
  out->emplace_back(CheckpointNamed{earliest});
}

// Returns the checkpoint that a result of `step` announces. The clock of a restored rank may lag
// behind the checkpoint's step. Such a rank writes its part later than this shard.
uint64_t AsyncShard::CheckpointFor(uint64_t step) const {
  if (!due_.empty()) return due_.back();
  return last_named_ > step ? last_named_ : 0;
}

absl::Status AsyncShard::CheckCheckpointStep(const protocol::ExchangeRequest& exchange) const {
  const uint64_t step = exchange.checkpoint_step;
  const bool known = std::binary_search(due_.begin(), due_.end(), step);
  if (step == 0 || step < open_step() || known) return absl::OkStatus();
  if (options_.shard == 0) {
    return InvalidRequest(exchange, absl::StrCat("refers to a checkpoint after step ", step,
                                                 ", which this shard has not named"));
  }
  if (step <= StepAfter(StepAfter(exchange.step))) return absl::OkStatus();
  return InvalidRequest(exchange, absl::StrCat("refers to a checkpoint after step ", step,
                                               ", but none is named more than two steps ahead"));
}

void AsyncShard::LearnCheckpoint(uint64_t step) {
  const auto at = std::lower_bound(due_.begin(), due_.end(), step);
  if (step == 0 || step < open_step() || (at != due_.end() && *at == step)) return;
  due_.insert(at, step);
}

void AsyncShard::WriteSnapshots(Effects* out) {
  const uint64_t open = open_step();
  while (!due_.empty() && due_.front() < open) {
    out->push_back(WriteSnapshot{Snapshot(due_.front())});
    due_.erase(due_.begin());
  }
}

std::shared_ptr<const protocol::ShardSnapshot> AsyncShard::Snapshot(uint64_t step) {
  MoveThresholds();
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, downlink_, plan_.aggregators, plan_.replica);
  snapshot->step = step;
  snapshot->plans = plans_.known.Copies();
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
  absl::Status fits = RestorePlans(snapshot, options_, &plans_);
  if (!fits.ok()) return fits;
  // The chunks were saved with the codecs of this plan.
  Adopt(plans_.known.newest());
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

}  // namespace sluice::server
