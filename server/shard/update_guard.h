// SPDX-License-Identifier: Apache-2.0
// UpdateGuard: finds contributions that are much larger than those of the other ranks or point
// against them, in modes in which every contribution is an update of its own. It compares a norm
// with the other ranks' newest norms for the same bundle. UpdateDirections measures directions.
// Pure. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "job/guard_spec.h"
#include "server/shard/notice.h"
#include "server/shard/rank_agreement.h"
#include "server/shard/rank_directions.h"
#include "server/shard/update_directions.h"

namespace sluice::server {

class UpdateGuard {
 public:
  // With fewer other ranks than this, no majority exists, so nothing is judged.
  static constexpr size_t kOthersMin = 2;
  // A rank remains suspect for this many of its own steps after an outlier.
  static constexpr uint64_t kSuspectSteps = 100;

  // `elements` is by bundle; 0 for bundles without updates.
  UpdateGuard(const job::GuardSpec& spec, uint64_t seed, const std::vector<uint64_t>& elements,
              size_t ranks)
      : spec_(spec),
        seed_(seed),
        norms_(elements.size(), std::vector<double>(ranks)),
        figures_(ranks),
        courses_(ranks),
        measured_(seed, elements, ranks),
        directions_(spec.policy, ranks) {}

  struct Verdict {
    float factor = 1;  // As in ContributionGuard::Judge.
    std::vector<Notice> notices;
  };
  // Judges the decoded mean of a rank's contribution to a bundle. Of a large bundle, it reads one
  // part in 16, and the window of UpdateDirections if that is in the bundle.
  Verdict Judge(uint64_t step, uint32_t bundle, uint32_t rank, absl::Span<const float> mean);

  // By rank.
  std::vector<RankAgreement> figures() const;

 private:
  struct Course {
    uint64_t suspect_until = 0;  // Step; 0 if the rank had no outlier.
    uint64_t step = 0;           // The newest step that was judged.
  };

  // Median of the other ranks' newest norms; 0 if there are too few.
  double MedianOfOthers(uint32_t bundle, uint32_t rank) const;
  void JudgeNorm(uint64_t step, uint32_t bundle, uint32_t rank, double norm, Verdict* verdict);
  // Returns true if the rank is one of a minority that opposes the others.
  bool IsOpposing(uint32_t rank) const;

  const job::GuardSpec spec_;
  const uint64_t seed_;
  std::vector<std::vector<double>> norms_;  // By bundle, then rank; 0 before the first.
  std::vector<RankAgreement> figures_;
  std::vector<Course> courses_;  // By rank.
  UpdateDirections measured_;
  RankDirections directions_;
};

}  // namespace sluice::server
