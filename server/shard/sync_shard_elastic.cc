// Workers that come and go: who is waited for in a bundle, and what a newcomer is told until then.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

}  // namespace

// Its holder's part of the step is waited for, and may be work.
bool SyncShard::IsMember(uint32_t bundle, uint32_t rank, uint64_t step) const {
  return !options_.elastic || member_since_[bundle][rank] <= step;
}

// It is in time for the step, so that it is for all after it.
void SyncShard::BecomeMember(uint32_t bundle, uint32_t rank, uint64_t step) {
  member_since_[bundle][rank] = step;
  AwaitMembers(open_step_, bundle, open_.bundles[bundle].get());
  AwaitMembers(StepAfter(open_step_), bundle, next_.bundles[bundle].get());
}

// Nobody waits for the rank any more. What it has brought stays in.
void SyncShard::Vacate(uint32_t rank) {
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    member_since_[bundle][rank] = kNever;
    AwaitMembers(open_step_, bundle, open_.bundles[bundle].get());
    AwaitMembers(StepAfter(open_step_), bundle, next_.bundles[bundle].get());
  }
  members_changed_ = true;
}

void SyncShard::AwaitMembers(uint64_t step, uint32_t bundle, OpenBundle* open) const {
  if (!options_.elastic || open == nullptr) return;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    open->Expect(rank, IsMember(bundle, rank, step));
  }
}

// Its predecessor may have been in the step; then that stays, and a newcomer's skip adds nothing.
bool SyncShard::IsStoodFor(const protocol::Exchange& exchange) const {
  return options_.elastic && exchange.step <= ranks_[exchange.sender.rank].inherited;
}

// A newcomer goes through what has closed by its results. What it may be in time for comes later:
// by that it knows that nobody has waited for it.
void SyncShard::AnswerLearner(StreamId stream, const protocol::Exchange& exchange,
                              const protocol::ExchangeAnswer& result, Effects* out) {
  if (!exchange.skip && !exchange.keys_only) {
    RefuseWork(stream, exchange, out);
    return;
  }
  auto answer = std::make_shared<protocol::ExchangeAnswer>(result);
  answer->open_step = std::max(open_step_, StepAfter(exchange.step));
  SendResult(stream, std::move(answer), out);
}

void SyncShard::RefuseWork(StreamId stream, const protocol::Exchange& exchange, Effects* out) {
  gate_.Refuse(stream, exchange,
               InvalidRequest(exchange,
                              "is work of a worker that has joined meanwhile and that nobody waits "
                              "for yet: it has to skip until it was in time for a step"),
               out);
}

// Of the open step, and of what that opens.
void SyncShard::CloseComplete(Effects* out) {
  members_changed_ = false;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    if (open_.bundles[bundle] != nullptr && IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

}  // namespace sluice::server
