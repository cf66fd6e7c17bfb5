// Implements a shard's part in job checkpoints: naming them, and saving and restoring its state.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

uint64_t SyncShard::NameCheckpoint(uint64_t minimum_step) {
  if (!due_.empty()) {
    asked_again_ = true;
    return DueCheckpoint();
  }
  wanted_checkpoint_ = std::max(minimum_step, StepAfter(StepAfter(open_step_)));
  return wanted_checkpoint_;
}

// Called before a bundle of the open step closes. Every worker needs the result of that bundle to
// finish the step. Therefore all workers know of the checkpoint before the next step, and all
// shards learn of it from the workers' requests of the next step. If this shard replays steps,
// workers may have finished the step with results of its predecessor. In that case the announcement
// waits until workers need this shard's own results.
void SyncShard::AnnounceCheckpoint(Effects* out) {
  if (!due_.empty()) {
    if (options_.replay && asked_again_) out->emplace_back(CheckpointNamed{DueCheckpoint()});
    asked_again_ = false;
    return;
  }
  const uint64_t earliest = StepAfter(StepAfter(open_step_));
  if (wanted_checkpoint_ == 0 || wanted_checkpoint_ > earliest) return;
  if (options_.replay && furthest_step_ > open_step_) return;
  wanted_checkpoint_ = 0;
  due_.push_back(earliest);
  out->emplace_back(CheckpointNamed{earliest});
}

// Expects a request that passed the checks.
void SyncShard::LearnCheckpoint(uint64_t step, Effects* out) {
  const auto at = std::lower_bound(due_.begin(), due_.end(), step);
  if (step == 0 || step < open_step_ || (at != due_.end() && *at == step)) return;
  due_.insert(at, step);
  if (options_.shard != 0) return;
  // A predecessor named this checkpoint and may have been the only process that knew of it.
  if (wanted_checkpoint_ <= step) wanted_checkpoint_ = 0;
  out->emplace_back(CheckpointNamed{step});
}

std::shared_ptr<const protocol::ShardSnapshot> SyncShard::Snapshot() const {
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, downlink_, aggregators_, replica_);
  snapshot->step = open_step_;
  for (const BundleLayout& bundle : bundles_) snapshot->versions.push_back(bundle.version);
  snapshot->plans = plans_.known.Copies();
  return snapshot;
}

absl::Status SyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  const absl::Status plans = RestorePlans(snapshot, options_, &plans_);
  if (!plans.ok()) return CannotGoOn(options_, snapshot, plans);
  // The chunks were saved with the codecs of this step's plan.
  AdoptPlanOf(snapshot.step);
  const absl::Status fits =
      RestoreParts(snapshot, options_, bundles_.size(), &downlink_, aggregators_, &replica_);
  if (!fits.ok()) return CannotGoOn(options_, snapshot, fits);
  for (size_t i = 0; i < bundles_.size(); ++i) bundles_[i].version = snapshot.versions[i];
  stats_.highest_closed_step = snapshot.step;
  return absl::OkStatus();
}

}  // namespace sluice::server
