// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_agreement.h"

namespace sluice::server {

std::vector<protocol::SuspectRank> SuspectsOf(absl::Span<const RankAgreement> all,
                                              job::GuardPolicy policy) {
  std::vector<protocol::SuspectRank> suspects;
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].suspect) continue;
    const bool counts = policy == job::GuardPolicy::kWarn ||
                        (policy == job::GuardPolicy::kClip && all[rank].opposes);
    suspects.push_back({.rank = rank, .opposes = all[rank].opposes, .counts = counts});
  }
  return suspects;
}

}  // namespace sluice::server
