// How a shard takes part in job checkpoints: naming one, its own state, and going on from it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/sync_shard.h"

namespace sluice {
namespace {

absl::Status Mismatch(absl::string_view what, uint64_t saved, uint64_t here) {
  return absl::InvalidArgumentError(absl::StrCat(what, " was ", saved, " and is now ", here));
}

// What of a snapshot must be the same, besides what its state says itself.
absl::Status CheckSnapshot(const ShardSnapshot& snapshot, const ShardOptions& options,
                           size_t bundles, size_t chunks) {
  if (snapshot.job_uid != options.job_uid) {
    return absl::InvalidArgumentError(absl::StrCat("it is of run ", absl::Hex(snapshot.job_uid),
                                                   ", this is run ", absl::Hex(options.job_uid)));
  }
  if (snapshot.term > options.term) return Mismatch("the term", snapshot.term, options.term);
  if (snapshot.shard != options.shard) {
    return Mismatch("the shard", snapshot.shard, options.shard);
  }
  if (snapshot.step + 1 != options.first_step) {
    return Mismatch("the step after it", snapshot.step + 1, options.first_step);
  }
  if (snapshot.versions.size() != bundles) {
    return Mismatch("the number of bundles", snapshot.versions.size(), bundles);
  }
  if (snapshot.aggregators.size() != chunks) {
    return Mismatch("the number of chunks", snapshot.aggregators.size(), chunks);
  }
  const size_t parameters = options.rule.has_value() ? chunks : 0;
  if (snapshot.replica.size() != parameters) {
    return Mismatch("the number of chunks whose parameters the shards keep (optimizer.on)",
                    snapshot.replica.size(), parameters);
  }
  return absl::OkStatus();
}

}  // namespace

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

std::shared_ptr<const ShardSnapshot> SyncShard::Snapshot() const {
  auto snapshot = std::make_shared<ShardSnapshot>();
  snapshot->job_uid = options_.job_uid;
  snapshot->term = options_.term;
  snapshot->step = open_step_;
  snapshot->shard = options_.shard;
  for (const BundlePlan& bundle : bundles_) snapshot->versions.push_back(bundle.version);
  snapshot->downlink = downlink_.Save();
  for (const std::unique_ptr<Aggregator>& aggregator : aggregators_) {
    snapshot->aggregators.push_back(SaveFields(aggregator->State()));
  }
  if (replica_.has_value()) {
    for (size_t i = 0; i < aggregators_.size(); ++i) snapshot->replica.push_back(replica_->Save(i));
  }
  return snapshot;
}

absl::Status SyncShard::Restore(const ShardSnapshot& snapshot) {
  const auto refused = [&](const absl::Status& why) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", options_.shard,
                                                   " cannot go on from the checkpoint after step ",
                                                   snapshot.step, ": ", why.message()));
  };
  absl::Status fits = CheckSnapshot(snapshot, options_, bundles_.size(), aggregators_.size());
  if (fits.ok()) fits = downlink_.Restore(snapshot.downlink);
  if (!fits.ok()) return refused(fits);
  const bool other_ranks =
      options_.restored_ranks != 0 && options_.restored_ranks != options_.incarnations.size();
  for (size_t i = 0; i < aggregators_.size(); ++i) {
    const std::vector<StateField> fields = aggregators_[i]->State();
    const SavedState& saved = snapshot.aggregators[i];
    fits = RestoreFields(other_ranks ? WithoutSenders(saved, fields) : saved, fields);
    if (!fits.ok()) {
      return refused(absl::InvalidArgumentError(absl::StrCat("chunk ", i, ": ", fits.message())));
    }
  }
  for (size_t i = 0; replica_.has_value() && i < aggregators_.size(); ++i) {
    fits = replica_->Restore(i, snapshot.replica[i]);
    if (!fits.ok()) {
      return refused(absl::InvalidArgumentError(absl::StrCat("chunk ", i, ": ", fits.message())));
    }
  }
  for (size_t i = 0; i < bundles_.size(); ++i) bundles_[i].version = snapshot.versions[i];
  stats_.highest_closed_step = snapshot.step;
  return absl::OkStatus();
}

}  // namespace sluice
