// RankWaits: how long what each rank has sent lies at a shard until it is answered, which is how
// long that rank waits for others (and a little for the shard). Pure; time comes in. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"

namespace sluice::server {

class RankWaits {
 public:
  // Of ranks 0 to `ranks` - 1; what others send counts for nothing.
  explicit RankWaits(uint32_t ranks) : ranks_(ranks), seconds_(ranks) {}

  // A contribution or a skip; each is answered or refused, as all that is sent to a shard.
  void Arrived(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now);
  // Its result has gone out.
  void Answered(uint32_t rank, uint64_t step, uint32_t bundle, absl::Time now);
  void Refused(uint32_t rank, uint64_t step, uint32_t bundle);

  // By rank: sums over steps, of the time from the last arrival of a step to the answer after which
  // nothing more of it was open. Of a step that is not the rank's last; step 0 does not count.
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  struct Rank {
    uint64_t step = 0;
    std::set<uint32_t> open{};  // Bundles of the step that are not answered.
    absl::Time arrived{};       // The last of the step.
    absl::Duration waited{};    // As far as is known: more of the step may come.
  };

  std::vector<Rank> ranks_;
  std::vector<double> seconds_;
};

}  // namespace sluice::server
