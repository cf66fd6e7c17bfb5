// SPDX-License-Identifier: Apache-2.0
// RankAgreement: how the contributions of a rank compare with those of the other ranks, for metrics
// and status pages.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "job/enums.h"
#include "protocol/shard_control.h"

namespace sluice::server {

struct RankAgreement {
  // Norm of a recent contribution, divided by the median norm of its step. 0 before the first.
  double norm_ratio = 0;
  // Mean cosine between recent contributions of the rank and the sum of the others', -1 to 1.
  double cosine = 0;
  uint64_t outliers = 0;  // Contributions to bundles whose norm was an outlier.
  uint64_t clipped = 0;   // The outliers that were scaled to the median norm.
  uint64_t left_out = 0;  // Contributions to bundles that do not count.
  bool suspect = false;   // The rank had an outlier recently, or opposes the others.
  bool opposes = false;   // The rank's contributions point against the others'.
};

// Returns the suspect ranks for a shard's report. `all` is by rank.
std::vector<protocol::SuspectRank> SuspectsOf(absl::Span<const RankAgreement> all,
                                              job::GuardPolicy policy);

}  // namespace sluice::server
