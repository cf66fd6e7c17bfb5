// SPDX-License-Identifier: Apache-2.0
// ContributionGuard: finds contributions that differ from those of the other ranks, because a rank
// is broken or hostile, and decides how much of them counts. Pure. Not thread-safe.
//
// When a bundle closes, the guard compares the norms of its contributions in one window of
// elements, chosen at random from the seed. It estimates the norms of sparse contributions from
// the same share of their values, because the positions are slow to decode. A norm above `limit`
// times the median is an outlier. Then the guard measures the whole bundle, and in the next
// kWatchSteps steps all bundles. It scales or leaves out every contribution whose norm is an
// outlier. The median norm as the bound follows the practice for updates from unknown peers
// (SparseLoCo, arXiv:2508.15706, its implementation).
//
// A contribution whose sign is flipped has a normal norm. So once per step, the guard also measures
// the cosine between each contribution and the sum of the others, all scaled to norm 1. It does so
// in the window of one bundle, or in the window's whole chunk if frames do not decode in parts.
// RankDirections judges the cosines.
//
// Equal contributions lead to equal decisions, whatever the order in which bundles close: what a
// bundle shows takes effect in that bundle and, from the next step on, in the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compress/frame_part.h"
#include "job/guard_spec.h"
#include "protocol/layout.h"
#include "server/shard/notice.h"
#include "server/shard/open_bundle.h"
#include "server/shard/rank_agreement.h"
#include "server/shard/rank_directions.h"

namespace sluice::server {

class ContributionGuard {
 public:
  // With fewer contributions to a bundle than this, no majority exists, so nothing is judged.
  static constexpr size_t kContributionsMin = 3;
  static constexpr uint64_t kWatchSteps = 100;

  // `bundles` are those of the shard, and `fragments` is the number of fragments of the layout.
  // `bundles` must outlive this object.
  ContributionGuard(const job::GuardSpec& spec, uint64_t seed, size_t ranks,
                    absl::Span<const protocol::Bundle> bundles, uint32_t fragments)
      : spec_(spec),
        seed_(seed),
        bundles_(bundles),
        fragments_(fragments),
        figures_(ranks),
        courses_(ranks),
        directions_(spec.policy, ranks) {}

  // Returns the factor of each contribution: 1, less for an outlier that is clipped, or 0 for a
  // contribution that is left out. Empty if all are 1. `counts` holds the number of elements of
  // each chunk. The frames must be valid and must decode alone.
  std::vector<float> Judge(uint64_t step, uint32_t bundle, absl::Span<const uint32_t> counts,
                           absl::Span<const HeldContribution> contributions);
  // Ends a step in which all bundles have closed. Returns what a person should know.
  std::vector<Notice> EndStep(uint64_t step);

  // By rank.
  const std::vector<RankAgreement>& figures() const { return figures_; }

 private:
  // Some elements of a bundle, all in one chunk.
  struct Window {
    size_t chunk = 0;
    compress::ChunkPart part;
  };
  // What the guard remembers of a rank.
  struct Course {
    uint64_t watched_until = 0;  // Step; 0 if the rank had no outlier.
    double worst = 0;            // The largest norm ratio of the open step's outliers.
    bool told = false;           // A notice has named the rank's outliers.
  };

  static Window ChooseWindow(uint64_t random, absl::Span<const uint32_t> counts);
  // Returns the part of a window in which norms are measured.
  static Window ForNorms(Window window, absl::Span<const HeldContribution> contributions);
  // Returns the bundle whose contributions the guard compares in this step.
  uint32_t ComparedBundle(uint64_t step) const;
  double NormIn(const Window& window, const HeldContribution& contribution);
  std::vector<double> NormsIn(const Window& window,
                              absl::Span<const HeldContribution> contributions);
  std::vector<double> WholeNorms(absl::Span<const uint32_t> counts,
                                 absl::Span<const HeldContribution> contributions);
  bool HasOutlier(absl::Span<const double> norms) const;
  void NoteRatios(absl::Span<const HeldContribution> contributions, absl::Span<const double> norms);
  void JudgeNorms(uint64_t step, absl::Span<const HeldContribution> contributions,
                  absl::Span<const double> norms, std::vector<float>* factors);
  void JudgeDirections(absl::Span<const HeldContribution> contributions,
                       std::vector<float>* factors);
  void Compare(Window window, absl::Span<const HeldContribution> contributions);

  const job::GuardSpec spec_;
  const uint64_t seed_;
  const absl::Span<const protocol::Bundle> bundles_;
  const uint32_t fragments_;
  std::vector<RankAgreement> figures_;
  std::vector<Course> courses_;  // By rank.
  RankDirections directions_;
  uint64_t watching_until_ = 0;  // The last step in which whole bundles are measured.
  // The largest norm ratios of the open step, by rank. 0 if the guard measured none.
  std::vector<double> ratios_;
  // The cosines of the open step, by rank. Empty until the guard has compared a bundle.
  std::vector<double> cosines_;
  std::vector<float> total_;    // Scratch: the sum of scaled contributions.
  std::vector<float> decoded_;  // Scratch of decoders.
};

}  // namespace sluice::server
