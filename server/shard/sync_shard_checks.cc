// Implements the checks of requests, and their error messages.
#include "absl/strings/str_cat.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
absl::Status SyncShard::CheckAddress(const protocol::ExchangeRequest& exchange) const {
  if (exchange.bundle >= bundles_.size()) {
    return InvalidRequest(exchange,
                          absl::StrCat("shard ", options_.shard, " has ", bundles_.size(),
                                       " bundles; worker and shard cut the tensors differently"));
  }
  if (exchange.step > StepAfter(open_step_)) {
    return InvalidRequest(exchange,
                          absl::StrCat("more than one step ahead of the open step ", open_step_));
  }
  if (exchange.acked_step > 0 && exchange.acked_step >= open_step_) {
    return InvalidRequest(exchange, absl::StrCat("acknowledges step ", exchange.acked_step,
                                                 ", but step ", open_step_, " is still open"));
  }
  const absl::Status stamps = gate_.CheckStamps(exchange);
  if (!stamps.ok()) return stamps;
  const absl::Status plans = plans_.Check(exchange, PositionOf(exchange));
  if (!plans.ok()) return plans;
  return checkpoints_.Check(exchange, open_step_);
}

bool SyncShard::OverMemory(const protocol::ExchangeRequest& exchange) const {
  uint32_t lowest = 0;
  while (lowest < closed_.size() && closed_[lowest]) ++lowest;
  if (exchange.step == open_step_ && exchange.bundle == lowest) return false;
  return reserved_bytes_ + stats_.held_bytes + log_.bytes() +
             protocol::TotalBytes(exchange.frames) >
         options_.max_memory;
}

}  // namespace sluice::server
