// SPDX-License-Identifier: Apache-2.0
// ShardLogPeer: reads the result log of a shard. For tests of results that were not sent on any
// stream.
#pragma once

#include <cstdint>
#include <memory>

#include "server/shard/sync_shard.h"

namespace sluice::server {

class ShardLogPeer {
 public:
  // Returns null if the bundle is not closed, if its result is no longer kept, or if the shard
  // keeps no results.
  static std::shared_ptr<const protocol::ExchangeReply> Find(const Shard& shard, uint64_t step,
                                                             uint32_t bundle) {
    const auto* const sync = dynamic_cast<const SyncShard*>(&shard);
    return sync == nullptr ? nullptr : sync->sink_.log().Find(step, bundle);
  }
};

}  // namespace sluice::server
