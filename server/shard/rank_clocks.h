// SPDX-License-Identifier: Apache-2.0
// RankClocks: the positions of the ranks of a shard whose ranks do not wait for each other. The
// clock of a rank in a bundle is the first step that the rank has not contributed to. With elastic
// membership, a newcomer has no clock until its first contribution, and nothing waits for it until
// it has reached the step of the slowest member. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "protocol/snapshot.h"
#include "server/shard/shard.h"

namespace sluice::server {

class RankClocks {
 public:
  // `options` must outlive the clocks.
  RankClocks(const ShardOptions* options, size_t bundles);

  // Returns why the rank cannot contribute to this step of the bundle. Empty if it can, or if it
  // has contributed to the step before.
  std::string WhyNot(uint32_t bundle, uint32_t rank, uint64_t step) const;
  // True if the rank has contributed to this step of the bundle.
  bool IsRepeat(uint32_t bundle, uint32_t rank, uint64_t step) const {
    return step < ClockOf(bundle, rank).value_or(0);
  }
  // The lowest clock of the bundle's members.
  uint64_t least(uint32_t bundle) const { return bundles_[bundle].least; }
  // The lowest clock of all bundles.
  uint64_t open_step() const;
  // Records the rank's contribution to a step for which WhyNot is empty and which is no repeat.
  void Advance(uint32_t bundle, uint32_t rank, uint64_t step);
  // True if the result of `step` need not wait for slower ranks: in step 0, in modes without a
  // bound on staleness, and within the bound.
  bool IsWithinBound(uint32_t bundle, uint64_t step) const;
  // The number of ranks whose clocks count.
  uint32_t members(uint32_t bundle) const;

  // Records the step of a valid request of the rank.
  void Reach(uint32_t rank, uint64_t step);
  // Forgets the requests of the rank, because its holder has changed. With elastic membership, the
  // rank also loses its clock, and no longer counts. Otherwise its contributions stay.
  void Replace(uint32_t rank);
  // The lowest and the highest of the members' highest requested steps. A member without requests
  // counts as 0.
  uint64_t least_reached() const;
  uint64_t furthest_reached() const;

  // Returns the last step that each rank has contributed to, by bundle and rank, for a checkpoint
  // after `step`. A rank that does not count continues after that step.
  std::vector<uint64_t> Save(uint64_t step) const;
  // Fails with INVALID_ARGUMENT if the snapshot's clocks are missing or out of range.
  absl::Status CheckRestorable(const protocol::ShardSnapshot& snapshot) const;
  // Continues from checked clocks. If the number of ranks has changed, all ranks begin at
  // first_step.
  void Restore(const protocol::ShardSnapshot& snapshot);

 private:
  struct Clock {
    std::optional<uint64_t> next{};  // Unset for a newcomer without contributions.
    bool counts = true;
  };
  struct BundleClocks {
    uint64_t least = 0;         // Lowest of the clocks that count. It stays when none is left.
    std::vector<Clock> clocks;  // By rank.
  };

  std::optional<uint64_t> ClockOf(uint32_t bundle, uint32_t rank) const {
    return bundles_[bundle].clocks[rank].next;
  }
  static void FindLeast(BundleClocks* bundle);
  bool HasRanksOfSnapshot() const;
  // A rank sends the bundles of a step in order, so the first bundle decides.
  bool Counts(uint32_t rank) const {
    return bundles_.empty() || bundles_.front().clocks[rank].counts;
  }

  const ShardOptions& options_;
  std::vector<BundleClocks> bundles_;
  std::vector<uint64_t> reached_;  // The highest step in a rank's requests, by rank.
};

}  // namespace sluice::server
