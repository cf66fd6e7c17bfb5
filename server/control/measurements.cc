// SPDX-License-Identifier: Apache-2.0
#include "server/control/measurements.h"

#include <algorithm>

namespace sluice::server {

void ScaleTransfers(double up, double down, StepMeasurements* measured) {
  const auto scale = [](double factor, std::vector<Transfer>* transfers) {
    for (Transfer& transfer : *transfers) {
      transfer.bytes = static_cast<uint64_t>(factor * static_cast<double>(transfer.bytes));
    }
  };
  for (RankMeasurements& rank : measured->ranks) {
    scale(up, &rank.up);
    scale(down, &rank.down);
  }
}

std::vector<Lateness> SplitLateness(const std::vector<RankMeasurements>& ranks) {
  std::vector<Lateness> lateness(ranks.size());
  if (ranks.empty()) return lateness;
  const auto first = std::min_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.arrival_s < b.arrival_s;
  });
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const double late = ranks[rank].arrival_s - first->arrival_s;
    lateness[rank].compute_s = std::clamp(ranks[rank].compute_s - first->compute_s, 0.0, late);
    lateness[rank].network_s = late - lateness[rank].compute_s;
  }
  return lateness;
}

}  // namespace sluice::server
