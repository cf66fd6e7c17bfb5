// ReplayBuffer: what a worker has sent since the newest complete checkpoint, as it was sent, so
// that a shard that was started again can be given it; and which result came of each bundle. At its
// limit the oldest steps go, in all shards at once, but never the newest: that one may be
// unresolved. Exchanges are shared with whoever sends them, not copied.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "protocol/exchange.h"

namespace sluice::worker {

class ReplayBuffer {
 public:
  struct Entry {
    std::shared_ptr<const protocol::Exchange> exchange;
    uint64_t bytes = 0;                            // As the limit counts them.
    std::optional<uint32_t> result_checksum = {};  // Of the record, once it is there.
    std::shared_ptr<const protocol::CompressionPlan> announced =
        {};  // By that result; null: no plan.
  };

  // `bytes_max` 0: nothing is kept. `first_step` is the first that will be added.
  ReplayBuffer(size_t shards, uint64_t bytes_max, uint64_t first_step);

  // Steps come in order, each bundle of one once.
  void Add(uint32_t shard, std::shared_ptr<const protocol::Exchange> exchange);
  // Null: not kept. Until the next Add or Release.
  Entry* Find(uint32_t shard, uint64_t step, uint32_t bundle);
  // What was sent up to `step` is needed no more.
  void Release(uint64_t step);

  // Everything of this step and later ones is here; 0: nothing is kept.
  uint64_t from() const { return bytes_max_ == 0 ? 0 : from_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void DropBefore(uint64_t step);

  const uint64_t bytes_max_;
  uint64_t from_;
  uint64_t bytes_ = 0;
  std::vector<std::deque<Entry>> shards_;  // In (step, bundle) order.
};

}  // namespace sluice::worker
