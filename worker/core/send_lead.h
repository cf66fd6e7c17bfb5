// SPDX-License-Identifier: Apache-2.0
// SendLead: decides how far a worker may send ahead of the results it has.
//
// TCP connections share a busy link unevenly: of eight workers behind a shard's link, some get four
// times the rate of others. A bundle's result leaves the shard when the last worker's contribution
// has arrived, so results of early bundles would wait while the link carries later bundles of the
// fast connections. If no worker is far ahead of the results, the link carries what the shard needs
// next, and results travel while later contributions do.
//
// The lead must cover the time from a contribution to its result on an idle link. Otherwise, the
// link would idle. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>

#include "absl/time/time.h"

namespace sluice::worker {

class SendLead {
 public:
  // Records the time from a step's first contribution to its last result.
  void ExchangeTook(absl::Duration took);
  // Returns the share of a step's bytes that a worker may have sent to a shard without a result. 0
  // means that there is no limit: there are no measurements, or the exchange is so short that the
  // lead would be a large part of it. `round_trip` is the one to the most distant shard.
  double Share(absl::Duration round_trip) const;

 private:
  // Stragglers make exchanges longer, so the shortest of the last ones counts.
  static constexpr size_t kExchanges = 8;

  std::deque<absl::Duration> took_;  // The newest is the last.
};

}  // namespace sluice::worker
