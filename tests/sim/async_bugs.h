// SPDX-License-Identifier: Apache-2.0
// Planted bugs in modes async and ssp. They change the requests, answers and snapshots of shards.
#pragma once

#include <memory>

#include "protocol/exchange.h"
#include "tests/sim/survival.h"

namespace sluice {

// Returns the request that a shard with the bug handles in place of `exchange`.
protocol::ExchangeRequest Forged(SurvivalBug bug, const protocol::ExchangeRequest& exchange,
                                 bool is_new);
// Returns the answer to a contribution that a shard with the bug loses, or null.
std::shared_ptr<const protocol::ExchangeReply> AnswerToLost(
    SurvivalBug bug, const protocol::ExchangeRequest& exchange, bool is_new);
// Returns the result that a rank receives from a shard with the bug.
std::shared_ptr<const protocol::ExchangeReply> Forged(
    SurvivalBug bug, uint32_t rank, std::shared_ptr<const protocol::ExchangeReply> answer);

}  // namespace sluice
