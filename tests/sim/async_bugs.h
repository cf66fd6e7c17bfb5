// What planted bugs make of what an AsyncJob's shards say and keep.
#pragma once

#include <memory>

#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "tests/sim/async_job.h"

namespace sluice {

// A snapshot, as a shard with the bug restores it.
std::shared_ptr<const ShardSnapshot> Forged(AsyncBug bug, const ShardSnapshot& snapshot);
// A result, as the rank is told it.
ExchangeAnswer Forged(AsyncBug bug, uint32_t rank, const ExchangeAnswer& answer);

}  // namespace sluice
