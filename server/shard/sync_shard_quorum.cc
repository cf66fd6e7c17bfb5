// Implements the close of a step without late ranks, and the use of their late work.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

// A checkpoint cannot contain waiting work, and the log must not evict results that a late rank
// still needs.
ClosingRule::Step SyncShard::OpenStepFacts() const {
  const bool is_due = checkpoints_.IsDue(open_step_);
  return {.step = open_step_, .may_leave_out = !is_due && !log_.full() && !gate_.ended()};
}

// True if an open bundle of the open step must close now.
bool SyncShard::IsDue(uint32_t bundle) const {
  return !handed_[bundle] && closing_.IsDue(OpenStepFacts(), bundle, *open_.bundles[bundle]);
}

absl::Time SyncShard::tick_due() const {
  if (members_changed_ && !gate_.ended()) return absl::InfinitePast();
  return closing_.DueAt(OpenStepFacts());
}

void SyncShard::CloseDue(Effects* out) {
  for (const uint32_t bundle : closing_.WithQuorum()) {
    if (IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

// Handles a contribution whose bundle has closed without it. `result` is the result of that bundle.
void SyncShard::HandleLate(StreamId stream, protocol::ExchangeRequest exchange,
                           const protocol::ExchangeReply& result, Effects* out) {
  const uint32_t rank = exchange.sender.rank;
  const Admitted last = admitted_[exchange.bundle][rank];
  const bool known = exchange.step <= last.step;
  if (!known && exchange.keys_only) {
    gate_.AskFor(stream, exchange, exchange.step, out);
    return;
  }
  const uint32_t checksum = protocol::BundleChecksum(exchange);
  const bool says_bytes = !exchange.keys_only || !exchange.checksums.empty();
  if (exchange.step == last.step && says_bytes && checksum != last.checksum) {
    RefuseOtherBytes(stream, exchange, last.checksum, checksum, out);
    return;
  }
  if (known) {
    ++stats_.repeats;
  } else {
    CountIn(exchange);
    admitted_[exchange.bundle][rank] = {exchange.step, checksum};
    // A skip for a closed step changes nothing, and buffers count only in their own step.
    if (!exchange.skip && !bundles_[exchange.bundle].buffers) {
      AddLate(std::move(exchange), checksum);
    }
  }
  // The answer contains the step that is open now. The rank may skip the steps before that.
  auto answer = std::make_shared<protocol::ExchangeReply>(result);
  answer->open_step = open_step_;
  SendResult(stream, std::move(answer), out);
}

// Adds late work to the oldest open step of its bundle, even if that step already has work of the
// rank. If late work waited for that step to close, ranks could block each other: two ranks left
// out of different bundles, or by different shards, could each wait for a step that cannot close
// without the other rank.
void SyncShard::AddLate(protocol::ExchangeRequest exchange, uint32_t checksum) {
  ++stats_.late_contributions;
  const uint64_t step = closed_[exchange.bundle] ? StepAfter(open_step_) : open_step_;
  OpenBundle* const open = FindOrOpen(step, exchange.bundle);
  stats_.held_bytes -= open->held_bytes();
  open->AdmitLate(exchange.sender.rank, exchange.step, checksum, exchange.rate,
                  std::move(exchange.frames));
  stats_.held_bytes += open->held_bytes();
}

}  // namespace sluice::server
