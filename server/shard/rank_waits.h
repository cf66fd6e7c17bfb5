// SPDX-License-Identifier: Apache-2.0
// RankWaits: measures how long each rank waits for its results at a shard. Nearly all of that time
// is spent on waiting for other ranks, and the rest is the shard's own work. Pure; callers pass the
// time. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"

namespace sluice::server {

class RankWaits {
 public:
  // Measures ranks 0 to `ranks` - 1. Ignores calls for other ranks.
  explicit RankWaits(uint32_t ranks) : ranks_(ranks), seconds_(ranks) {}

  // Records a contribution or a skip. An Answered or Refused call must follow for each of them.
  void Arrived(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now);
  // Records that the result was sent to the rank.
  void Answered(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now);
  void Refused(uint32_t rank, uint64_t step, uint32_t bundle);

  // The total wait of each rank over its finished steps. The wait of a step lasts from the step's
  // last arrival until all of its bundles are answered. A rank's newest step and step 0 do not
  // count.
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  struct Rank {
    uint64_t step = 0;
    std::set<uint32_t> open{};  // Bundles of the step that are not answered yet.
    absl::Time arrived{};       // Time of the step's last arrival.
    absl::Duration waited{};    // The wait so far; the step may get more bundles.
  };

  std::vector<Rank> ranks_;
  std::vector<double> seconds_;
};

}  // namespace sluice::server
