// SPDX-License-Identifier: Apache-2.0
#include "worker/core/send_lead.h"

#include <algorithm>

namespace sluice::worker {
namespace {

// A shard sums a bundle, encodes the result and writes it in less time than this, also if it shares
// its processor with some workers.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(80);
constexpr int kRoundTrips = 2;
constexpr double kShareMax = 0.125;

}  // namespace

void SendLead::ExchangeTook(absl::Duration took) {
  took_.push_back(took);
  if (took_.size() > kExchanges) took_.pop_front();
}

double SendLead::Share(absl::Duration round_trip) const {
  if (took_.empty()) return 0;
  const absl::Duration exchange = *std::min_element(took_.begin(), took_.end());
  const double share = absl::FDivDuration(kAnswerTime + kRoundTrips * round_trip, exchange);
  return share > kShareMax ? 0 : share;
}

}  // namespace sluice::worker
