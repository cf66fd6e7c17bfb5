// SPDX-License-Identifier: Apache-2.0
// UpdateGuard: finds contributions that are much larger than those of the other ranks, in modes in
// which every contribution is an update of its own. It compares a norm with the other ranks' newest
// norms for the same bundle. Pure. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "job/guard_spec.h"
#include "server/shard/notice.h"
#include "server/shard/rank_agreement.h"

namespace sluice::server {

class UpdateGuard {
 public:
  // With fewer other ranks than this, no majority exists, so nothing is judged.
  static constexpr size_t kOthersMin = 2;
  // A rank remains suspect for this many of its own steps after an outlier.
  static constexpr uint64_t kSuspectSteps = 100;

  UpdateGuard(const job::GuardSpec& spec, uint64_t seed, size_t bundles, size_t ranks)
      : spec_(spec), seed_(seed), norms_(bundles, std::vector<double>(ranks)), ranks_(ranks) {}

  struct Verdict {
    float factor = 1;             // As in ContributionGuard::Judge.
    std::vector<Notice> notices;  // At most one.
  };
  // Judges the decoded mean of a rank's contribution to a bundle. Of a large bundle, reads one part
  // in 16.
  Verdict Judge(uint64_t step, uint32_t bundle, uint32_t rank, absl::Span<const float> mean);

  // By rank. The cosines are not set.
  std::vector<RankAgreement> figures() const;

 private:
  struct Rank {
    RankAgreement figures{};
    uint64_t suspect_until = 0;  // Step; 0 if the rank had no outlier.
    uint64_t step = 0;           // The newest step that was judged.
  };

  // Median of the other ranks' newest norms; 0 if there are too few.
  double MedianOfOthers(uint32_t bundle, uint32_t rank) const;

  const job::GuardSpec spec_;
  const uint64_t seed_;
  std::vector<std::vector<double>> norms_;  // By bundle, then rank; 0 before the first.
  std::vector<Rank> ranks_;
};

}  // namespace sluice::server
