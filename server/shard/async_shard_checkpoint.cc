// SPDX-License-Identifier: Apache-2.0
// Implements checkpoints and plans of a shard whose ranks do not wait for each other.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/shard/async_shard.h"

namespace sluice::server {

uint64_t AsyncShard::NameCheckpoint(uint64_t minimum_step) {
  return checkpoints_.Name(minimum_step,
                           std::max(checkpoints_.EarliestAfter(clocks_.furthest_reached()),
                                    checkpoints_.EarliestAfter(open_step())));
}

// Announces a checkpoint after the second step beyond the furthest rank's. No rank has begun the
// first of these two steps. Therefore all ranks learn of the checkpoint from that step's results
// and report it to all shards with their requests of the next step. A new checkpoint is announced
// only when all ranks have finished the previous one on all shards. A rank has done so once it
// begins a later step.
void AsyncShard::AnnounceCheckpoint(Effects* out) {
  const uint64_t last = checkpoints_.last_named();
  checkpoints_.Announce(checkpoints_.EarliestAfter(clocks_.furthest_reached()),
                        last == 0 || clocks_.least_reached() > last, out);
}

void AsyncShard::WriteSnapshots(Effects* out) {
  const uint64_t open = open_step();
  if (open == 0) return;
  while (const std::optional<uint64_t> due = checkpoints_.TakeUpTo(open - 1)) {
    out->push_back(WriteSnapshot{Snapshot(*due)});
  }
}

std::shared_ptr<const protocol::ShardSnapshot> AsyncShard::Snapshot(uint64_t step) {
  publisher_.MoveThresholds();
  std::shared_ptr<protocol::ShardSnapshot> snapshot =
      SaveParts(options_, *publisher_.downlink(), plan_.aggregators, plan_.replica);
  snapshot->step = step;
  snapshot->plans = plans_.Copies();
  for (const BundleLayout& bundle : plan_.bundles) snapshot->versions.push_back(bundle.version);
  snapshot->clocks = clocks_.Save(step);
  return snapshot;
}

absl::Status AsyncShard::Restore(const protocol::ShardSnapshot& snapshot) {
  // The chunks were saved with the codecs of the newest plan.
  absl::Status fits = plans_.Restore(snapshot);
  if (!fits.ok()) return fits;
  fits = RestoreParts(snapshot, options_, bundles(), publisher_.downlink(), plan_.aggregators,
                      &plan_.replica);
  if (fits.ok()) fits = clocks_.CheckRestorable(snapshot);
  if (fits.ok()) fits = publisher_.CheckVersions(snapshot.versions);
  if (!fits.ok()) return fits;
  clocks_.Restore(snapshot);
  publisher_.Resume(snapshot.versions);
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
  const double frames = publisher_.TakePublicationsPerResult();
  if (frames > 1) ScaleTransfers(1, 1 / frames, &adapted);
  plans_.Measured(adapted);
}

}  // namespace sluice::server
