// Planted bugs that change the answers and snapshots of an AsyncJob's shards.
#pragma once

#include <memory>

#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "tests/sim/async_job.h"

namespace sluice {

// Returns the snapshot that a shard with the bug restores.
std::shared_ptr<const protocol::ShardSnapshot> Forged(AsyncBug bug,
                                                      const protocol::ShardSnapshot& snapshot);
// Returns the result that a rank receives from a shard with the bug.
protocol::ExchangeReply Forged(AsyncBug bug, uint32_t rank, const protocol::ExchangeReply& answer);

}  // namespace sluice
