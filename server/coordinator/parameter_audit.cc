// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/parameter_audit.h"

namespace sluice::server {

std::optional<protocol::Sender> ParameterAudit::Report(uint64_t step,
                                                       const protocol::Sender& sender,
                                                       absl::string_view sha256,
                                                       std::optional<uint32_t> ranks) {
  const auto at = hashes_.try_emplace(step, Hash{sender, std::string(sha256), {}}).first;
  Hash& hash = at->second;
  if (hash.sha256 != sha256) return hash.first;
  hash.ranks.insert(sender.rank);
  if (ranks.has_value() && hash.ranks.size() >= *ranks) hashes_.erase(at);
  if (hashes_.size() > kStepsMax) hashes_.erase(hashes_.begin());
  return std::nullopt;
}

void ParameterAudit::ForgetCompleteUpTo(uint64_t step, uint32_t ranks) {
  std::erase_if(hashes_, [step, ranks](const auto& entry) {
    return entry.first <= step && entry.second.ranks.size() >= ranks;
  });
}

}  // namespace sluice::server
