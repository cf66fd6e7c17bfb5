// SPDX-License-Identifier: Apache-2.0
// ReplayBuffer: the requests that a worker has sent since the newest complete checkpoint, byte for
// byte, so that it can replay them to a restarted shard. It also records the result of each bundle.
// When the buffer exceeds its limit, it drops the oldest steps of all shards together, but never
// the newest step, which may be unresolved. Exchanges are shared with the sender, not copied.
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
    std::shared_ptr<const protocol::ExchangeRequest> exchange;
    uint64_t bytes = 0;  // Size that counts against the limit.
    // Checksum of the result's record, once it has arrived.
    std::optional<uint32_t> result_checksum = {};
    // Plan that the result announced; null if none.
    std::shared_ptr<const protocol::CompressionPlan> announced = {};
  };

  // If `bytes_max` is 0, the buffer keeps nothing. `first_step` is the first step that will be
  // added.
  ReplayBuffer(size_t shards, uint64_t bytes_max, uint64_t first_step);

  // Add steps in order, and each bundle of a step once.
  void Add(uint32_t shard, std::shared_ptr<const protocol::ExchangeRequest> exchange);
  // Returns null if the entry is not kept. The pointer is valid until the next Add or Release.
  Entry* Find(uint32_t shard, uint64_t step, uint32_t bundle);
  // Drops all requests up to and including `step`.
  void Release(uint64_t step);

  // Returns the first step from which all requests are kept, or 0 if the buffer keeps nothing.
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
