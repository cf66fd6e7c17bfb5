// Implements elastic membership: how ranks become members, and how newcomers are answered until
// they are members.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

// Makes the rank a member from this step on, because it is in time for this step.
void SyncShard::BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step) {
  closing_.Join(bundle, rank, step);
  AwaitMembers(bundle);
}

// Stops waiting for the rank. Its admitted contributions stay.
void SyncShard::Vacate(uint32_t rank) {
  if (!closing_.Leave(rank)) return;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) AwaitMembers(bundle);
  members_changed_ = true;
}

void SyncShard::AwaitMembers(uint32_t bundle) {
  closing_.AwaitMembers(bundle, open_step_, open_.bundles[bundle].get());
  closing_.AwaitMembers(bundle, StepAfter(open_step_), next_.bundles[bundle].get());
}

// True if the rank's predecessor may have contributed to the step. That contribution stays, and the
// newcomer's skip adds nothing.
bool SyncShard::IsStoodFor(const protocol::ExchangeRequest& exchange) const {
  return options_.elastic && exchange.step <= ranks_[exchange.sender.rank].inherited;
}

// Answers a newcomer that replays closed steps. The open step in the answer is beyond the replayed
// step, which shows the newcomer that no bundle waited for it.
void SyncShard::AnswerLateJoiner(StreamId stream, const protocol::ExchangeRequest& exchange,
                                 const protocol::ExchangeReply& result, Effects* out) {
  if (!exchange.skip && !exchange.keys_only) {
    RefuseWork(stream, exchange, out);
    return;
  }
  auto answer = std::make_shared<protocol::ExchangeReply>(result);
  answer->open_step = std::max(open_step_, StepAfter(exchange.step));
  SendResult(stream, std::move(answer), out);
}

void SyncShard::RefuseWork(StreamId stream, const protocol::ExchangeRequest& exchange,
                           Effects* out) {
  gate_.Refuse(
      stream, exchange,
      InvalidRequest(exchange,
                     "is work of a newcomer that no step waits for: it has to skip for now"),
      out);
}

// Closes the bundles of the open step that are due. Also closes those of the next step if it opens.
void SyncShard::CloseComplete(Effects* out) {
  members_changed_ = false;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    if (open_.bundles[bundle] != nullptr && IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

}  // namespace sluice::server
