// Implements a shard's part in job checkpoints: naming them, and saving and restoring its state.
#include <memory>

#include "server/shard/sync_shard.h"

namespace sluice::server {

uint64_t SyncShard::NameCheckpoint(uint64_t minimum_step) {
  return checkpoints_.Name(minimum_step, checkpoints_.EarliestAfter(open_step_));
}

// Called before a bundle of the open step closes. Every worker needs the result of that bundle to
// finish the step. Therefore all workers know of the checkpoint before the next step, and all
// shards learn of it from the workers' requests of the next step. If this shard replays steps,
// workers may have finished the step with results of its predecessor. In that case the announcement
// waits until workers need this shard's own results.
void SyncShard::AnnounceCheckpoint(Effects* out) {
  const bool is_ready = !options_.replay || furthest_step_ <= open_step_;
  checkpoints_.Announce(checkpoints_.EarliestAfter(open_step_), is_ready, out);
}

std::shared_ptr<const protocol::ShardSnapshot> SyncShard::Snapshot() const {
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, downlink_, aggregators_, replica_);
  snapshot->step = open_step_;
  for (const BundleLayout& bundle : bundles_) snapshot->versions.push_back(bundle.version);
  snapshot->plans = plans_.Copies();
  return snapshot;
}

absl::Status SyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  // The chunks were saved with the codecs of this step's plan.
  const absl::Status plans = plans_.Restore(snapshot);
  if (!plans.ok()) return CannotGoOn(options_, snapshot, plans);
  const absl::Status fits =
      RestoreParts(snapshot, options_, bundles_.size(), &downlink_, aggregators_, &replica_);
  if (!fits.ok()) return CannotGoOn(options_, snapshot, fits);
  for (size_t i = 0; i < bundles_.size(); ++i) bundles_[i].version = snapshot.versions[i];
  stats_.highest_closed_step = snapshot.step;
  return absl::OkStatus();
}

}  // namespace sluice::server
