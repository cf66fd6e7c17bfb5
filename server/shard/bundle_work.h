// SPDX-License-Identifier: Apache-2.0
// BundleWork: the work on one closing bundle, as a value: sum its contributions, update the
// parameters if the shard has an update rule, and encode the result. BundleCoder does the work.
//
// The work on a bundle reads and changes only the bundle and the codecs of its chunks. It returns
// everything else as a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/aggregator.h"
#include "compress/compressor.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "server/shard/contribution_guard.h"
#include "server/shard/contribution_merge.h"
#include "server/shard/open_bundle.h"
#include "server/shard/outer_gain.h"
#include "server/shard/shard.h"
#include "server/shard/shard_layout.h"
#include "server/shard/shard_parameters.h"
#include "server/shard/shard_threads.h"

namespace sluice::server {

// All pointers must outlive the work.
struct BundleWork {
  uint64_t step = 0;
  uint32_t bundle = 0;
  const BundleLayout* layout = nullptr;
  OpenBundle* open = nullptr;
  const Publication* given = nullptr;  // The parent job's mean. Null to sum the contributions.
};

struct BundleResult {
  std::vector<protocol::Included> included;
  uint32_t n = 0;
  float rate = 0;                    // Rate of the update; 0 without an update rule.
  std::vector<std::string> frames;   // By chunk; empty if n is 0.
  bool exact = false;                // As in Publication.
  bool left_out = false;             // The mean was not finite, so all contributions are skipped.
  std::vector<ShardEffect> effects;  // Notices and alarms.
};

// Works on bundles one after another. Not thread-safe.
class BundleCoder {
 public:
  // `options` must outlive the coder.
  BundleCoder(const ShardOptions* options, const std::vector<compress::ChunkConfig>& downlink,
              std::vector<std::unique_ptr<compress::Aggregator>> aggregators,
              std::optional<ShardParameters> replica);

  // Returns the result for the ranks.
  BundleResult Run(const BundleWork& work);
  // Returns the sum of the contributions for the parent job. The arrivals stay in the bundle, so
  // that the shard can distinguish repeats from requests with different bytes.
  std::shared_ptr<const BundleSum> SumUp(const BundleWork& work);

  // Ends a step in which all bundles have closed.
  void EndStep(uint64_t step, std::vector<ShardEffect>* out);
  compress::Compressor* downlink() { return &downlink_; }
  ShardThreads* threads() { return threads_.get(); }
  std::optional<ShardParameters>* replica() { return &replica_; }
  // Null without an update rule.
  const ShardParameters* parameters() const { return replica_.has_value() ? &*replica_ : nullptr; }
  // Adds the figures of the guard and of the outer optimizer, if there are any.
  void AddFigures(ShardStats* stats) const;
  // Like SaveParts and RestoreParts.
  std::shared_ptr<protocol::ShardSnapshot> Save() const;
  absl::Status Restore(const protocol::ShardSnapshot& snapshot, size_t bundles);
  // Implement Shard::ResidualEnergy and Shard::DownlinkResidual.
  double ResidualEnergy() const;
  absl::Span<const float> DownlinkResidual(const BundleLayout& layout, size_t position) const;

 private:
  // Scales or leaves out the contributions of broken or hostile ranks.
  void JudgeContributions(const BundleWork& work);
  // Returns true if the job's `merge_` keys replace the mean.
  bool IsMerged(const BundleWork& work) const;
  // Returns the mean of a chunk, or what the job's `merge_` keys set in its place. A merged bundle
  // needs one lane, and its chunks in order.
  absl::Span<const float> MeanOf(const BundleWork& work, size_t chunk, size_t lane);
  // Returns the threads for a bundle: null for a merged one.
  Parallel* ThreadsFor(const BundleWork& work, protocol::Stage stage);
  void MoveParameters(const BundleWork& work, BundleResult* result);
  void EncodeMean(const BundleWork& work, BundleResult* result);
  void Update(const BundleWork& work, BundleResult* result);
  // Returns which chunks have a finite mean, and collects the means.
  std::vector<bool> CollectMeans(const BundleWork& work, absl::Status* all_finite);
  void MoveFrames(const BundleWork& work, BundleResult* result);

  const ShardOptions& options_;
  const std::unique_ptr<ShardThreads> threads_;
  const std::vector<std::unique_ptr<compress::Aggregator>>
      aggregators_;  // By chunk, for all bundles.
  compress::Compressor downlink_;
  std::optional<ShardParameters> replica_;      // Set if there is an update rule.
  std::optional<ContributionGuard> guard_;      // Set if the job has a guard.
  std::optional<ContributionMerge> merge_;      // Set unless contributions are merged plainly.
  std::optional<OuterGain> outer_gain_;         // Set in local_sgd, if its gain is known.
  std::vector<float> means_;                    // Means of the bundle that is being updated.
  std::vector<std::vector<float>> owed_;        // Scratch, by lane.
  std::vector<std::vector<std::byte>> frames_;  // Frames of the last result. The memory is reused.
};

}  // namespace sluice::server
