// What planted bugs make of what an AsyncJob's shards say and keep.
#pragma once

#include <memory>

#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "tests/sim/async_job.h"

namespace sluice {

// A snapshot, as a shard with the bug restores it.
std::shared_ptr<const protocol::ShardSnapshot> Forged(AsyncBug bug,
                                                      const protocol::ShardSnapshot& snapshot);
// A result, as the rank is told it.
protocol::ExchangeAnswer Forged(AsyncBug bug, uint32_t rank,
                                const protocol::ExchangeAnswer& answer);

}  // namespace sluice
