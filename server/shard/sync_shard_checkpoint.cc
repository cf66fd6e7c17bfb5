// How a shard takes part in job checkpoints: naming one, its own state, and going on from it.
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

// Before a bundle of the open step is closed: every worker needs its result to finish the step, so
// that all know the name before the next one, and say it in all their requests of that one at the
// latest, to all shards. A shard that goes through steps again may find that workers have finished
// the step with results of its predecessor: then it waits until they need its own.
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

// From a request that was checked.
void SyncShard::LearnCheckpoint(uint64_t step, Effects* out) {
  const auto at = std::lower_bound(due_.begin(), due_.end(), step);
  if (step == 0 || step < open_step_ || (at != due_.end() && *at == step)) return;
  due_.insert(at, step);
  if (options_.shard != 0) return;
  // Of a predecessor of ours, which may have been the only one to know of it.
  if (wanted_checkpoint_ <= step) wanted_checkpoint_ = 0;
  out->emplace_back(CheckpointNamed{step});
}

std::shared_ptr<const protocol::ShardSnapshot> SyncShard::Snapshot() const {
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, downlink_, aggregators_, replica_);
  snapshot->step = open_step_;
  for (const BundlePlan& bundle : bundles_) snapshot->versions.push_back(bundle.version);
  snapshot->plans = plans_.known.Copies();
  return snapshot;
}

absl::Status SyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  const absl::Status plans = RestorePlans(snapshot, options_, &plans_);
  if (!plans.ok()) return CannotGoOn(options_, snapshot, plans);
  // Its chunks were saved as the plan of its step has them.
  TakeUpPlanOf(snapshot.step);
  const absl::Status fits =
      RestoreParts(snapshot, options_, bundles_.size(), &downlink_, aggregators_, &replica_);
  if (!fits.ok()) return CannotGoOn(options_, snapshot, fits);
  for (size_t i = 0; i < bundles_.size(); ++i) bundles_[i].version = snapshot.versions[i];
  stats_.highest_closed_step = snapshot.step;
  return absl::OkStatus();
}

}  // namespace sluice::server
