// SPDX-License-Identifier: Apache-2.0
// ContributionMerge: merges the contributions to a bundle where the result is not their plain mean
// (job keys `merge_weights`, `merge_over`, `merge_method` and `late_decay`). Pure. Not thread-safe.
//
// A contribution's weight is 1, or samples^2 / steps: the number of its samples times their number
// per step, as in Decoupled DiLoCo (arXiv:2604.21428). A weight counts as at most kWeightMax times
// the median weight, so that a wrong number cannot give one rank the whole result.
//
//   all      sum of weight * value / sum of weights
//   senders  the same for each element, over the contributions in which it is not 0. Sparse
//            contributions overlap little, so that the result is up to as many times larger as
//            there are contributions (SparseLoCo, arXiv:2508.15706, its implementation).
//   rda      Radial-directional averaging (arXiv:2604.21428): the direction of the weighted sum of
//            the contributions, all scaled to norm 1, with the weighted mean of their norms. Norms
//            are of one chunk.
//
// A late contribution's values are multiplied by MergeSpec::LateFactor. Its weight in the sum of
// weights stays, because the sender sends the rest later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "job/merge_spec.h"
#include "server/shard/open_bundle.h"

namespace sluice::server {

class ContributionMerge {
 public:
  static constexpr double kWeightMax = 16;

  // A bundle is exchanged in every `fragments`-th step.
  ContributionMerge(const job::MergeSpec& spec, uint32_t fragments)
      : spec_(spec), fragments_(fragments) {}

  // Returns what the contributions to a chunk of `count` elements become in `step`. There must be
  // at least one, and its frames must be valid and decode alone. The span is valid until the next
  // call.
  absl::Span<const float> MeanOf(uint64_t step, absl::Span<const HeldContribution> contributions,
                                 size_t chunk, uint32_t count);

  // Returns the share of each rank's contribution in the newest result, before kSenders or kRda
  // change it: its weight times its late factor and the guard's factor. By rank; 0 if the result
  // has no contribution of the rank. Empty before the first result.
  const std::vector<double>& shares() const { return shares_; }

 private:
  // Returns the weights of the contributions; their sum is 1.
  std::vector<double> Weights(absl::Span<const HeldContribution> contributions) const;
  // These add to sum_, which is 0 before. `parts` are the weights times the late factors.
  void AddAll(absl::Span<const HeldContribution> contributions, absl::Span<const double> parts,
              size_t chunk);
  void AddSenders(absl::Span<const HeldContribution> contributions, absl::Span<const double> parts,
                  absl::Span<const double> weights, size_t chunk);
  void NoteShares(absl::Span<const HeldContribution> contributions, absl::Span<const double> parts);
  void AddDirections(absl::Span<const HeldContribution> contributions,
                     absl::Span<const double> parts, size_t chunk);

  const job::MergeSpec spec_;
  const uint32_t fragments_;
  std::vector<double> shares_;
  std::vector<float> sum_;
  std::vector<float> totals_;   // Scratch: the sum of the senders' weights, by element.
  std::vector<float> decoded_;  // Scratch of decoders.
};

}  // namespace sluice::server
