// SPDX-License-Identifier: Apache-2.0
// RankDirections: finds ranks whose contributions point against those of the others, such as ranks
// with a flipped sign. Such contributions have normal norms. Pure. Not thread-safe.
//
// The caller measures the cosine between a contribution of a rank and the sum of the others', all
// scaled to norm 1. A rank opposes the others if its mean over its last kWindow cosines is negative
// by more than four standard errors, while the median rank's is positive by as much. This needs
// four ranks, because one of three cancels another. A rank's opposition ends when its mean is
// positive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "job/enums.h"
#include "server/shard/notice.h"
#include "server/shard/rank_agreement.h"

namespace sluice::server {

class RankDirections {
 public:
  static constexpr size_t kWindow = 12;
  // A rank can be found to oppose the others after this many cosines.
  static constexpr size_t kCosinesMin = 8;
  // With fewer ranks that have so many cosines, none is judged.
  static constexpr size_t kRanksMin = 3;

  RankDirections(job::GuardPolicy policy, size_t ranks) : policy_(policy), courses_(ranks) {}

  // Notes a cosine of a rank, and sets the mean in its figures.
  void Follow(uint32_t rank, double cosine, RankAgreement* figures);
  // Sets `opposes` in the figures of all ranks. Returns what a person should know about changes.
  std::vector<Notice> Update(uint64_t step, absl::Span<RankAgreement> figures) const;

 private:
  struct Course {
    std::deque<double> cosines;  // The last kWindow cosines.
    double error = 0;            // The standard error of their mean.
  };

  const job::GuardPolicy policy_;
  std::vector<Course> courses_;  // By rank.
};

}  // namespace sluice::server
