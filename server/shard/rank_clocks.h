// RankClocks: the positions of the ranks of a shard whose ranks do not wait for each other. The
// clock of a rank in a bundle is the first step that the rank has not contributed to. Pure; not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "protocol/snapshot.h"
#include "server/shard/shard.h"

namespace sluice::server {

class RankClocks {
 public:
  // `options` must outlive the clocks.
  RankClocks(const ShardOptions* options, size_t bundles);

  // The rank's clock: the first step of the bundle that the rank has not contributed to.
  uint64_t next(uint32_t bundle, uint32_t rank) const { return bundles_[bundle].next[rank]; }
  // The lowest clock of the bundle.
  uint64_t least(uint32_t bundle) const { return bundles_[bundle].least; }
  // The lowest clock of all bundles.
  uint64_t open_step() const;
  // Records the rank's contribution to `step`, which must be at the rank's clock.
  void Advance(uint32_t bundle, uint32_t rank, uint64_t step);
  // True if the result of `step` need not wait for slower ranks: in step 0, in modes without a
  // bound on staleness, and within the bound.
  bool IsWithinBound(uint32_t bundle, uint64_t step) const;

  // Records the step of a valid request of the rank.
  void Reach(uint32_t rank, uint64_t step);
  // Forgets the requests of the rank, because it has a new holder. Its contributions stay.
  void ForgetRequests(uint32_t rank) { reached_[rank] = 0; }
  // The lowest and the highest of the ranks' highest requested steps. A rank without requests
  // counts as 0.
  uint64_t least_reached() const;
  uint64_t furthest_reached() const;

  // Returns the last step that each rank has contributed to, by bundle and rank, for a checkpoint.
  std::vector<uint64_t> Save() const;
  // Fails with INVALID_ARGUMENT if the snapshot's clocks are missing or out of range.
  absl::Status CheckRestorable(const protocol::ShardSnapshot& snapshot) const;
  // Continues from checked clocks. If the number of ranks has changed, all ranks begin at
  // first_step.
  void Restore(const protocol::ShardSnapshot& snapshot);

 private:
  struct BundleClocks {
    uint64_t least = 0;          // Lowest of `next`.
    std::vector<uint64_t> next;  // By rank.
  };

  bool HasRanksOfSnapshot() const;

  const ShardOptions& options_;
  std::vector<BundleClocks> bundles_;
  std::vector<uint64_t> reached_;  // The highest step in a rank's requests, by rank.
};

}  // namespace sluice::server
