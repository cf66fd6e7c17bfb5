// How a step closes without the ranks that are late, and what becomes of their work.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/frame.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

// Parameters and buffers are everybody's, a checkpoint has no place for work that waits, and what a
// late rank has yet to be told must not go for a limit.
bool SyncShard::MayCloseEarly() const {
  if (options_.quorum == 0 || open_step_ == 0 || log_.full() || gate_.ended()) return false;
  return !std::binary_search(due_.begin(), due_.end(), open_step_);
}

bool SyncShard::WaitsForAll(uint32_t bundle) const {
  return bundles_[bundle].buffers && open_step_ % options_.average_buffers_every == 0;
}

// An open bundle of the open step is to be closed now.
bool SyncShard::IsDue(uint32_t bundle) const {
  const OpenBundle& open = *open_.bundles[bundle];
  if (handed_[bundle]) return false;
  if (open_step_ == 0 && !open.arrived(ParameterRank(options_))) return false;
  if (open.complete()) return true;
  return open.quorum_at() + options_.grace <= now_ && MayCloseEarly() && !WaitsForAll(bundle);
}

absl::Time SyncShard::tick_due() const {
  if (members_changed_ && !gate_.ended()) return absl::InfinitePast();
  if (!MayCloseEarly()) return absl::InfiniteFuture();
  for (const auto& [quorum_at, bundle] : quorums_) {
    if (!WaitsForAll(bundle)) return quorum_at + options_.grace;
  }
  return absl::InfiniteFuture();
}

// Of the open step.
void SyncShard::NoteQuorum(uint32_t bundle) {
  const absl::Time at = open_.bundles[bundle]->quorum_at();
  if (at < absl::InfiniteFuture()) quorums_.insert({at, bundle});
}

void SyncShard::CloseDue(Effects* out) {
  const std::set<std::pair<absl::Time, uint32_t>> quorums = quorums_;
  for (const auto& [at, bundle] : quorums) {
    if (IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

// Of a step whose bundle was closed without it, with `result`.
void SyncShard::HandleLate(StreamId stream, protocol::Exchange exchange,
                           const protocol::ExchangeAnswer& result, Effects* out) {
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
    // A skip of a closed step changes nothing, and of a buffer only the step that is due counts.
    if (!exchange.skip && !bundles_[exchange.bundle].buffers) {
      TakeLate(std::move(exchange), checksum);
    }
  }
  // With the step that is open now: its rank may skip those before.
  auto answer = std::make_shared<protocol::ExchangeAnswer>(result);
  answer->open_step = open_step_;
  SendResult(stream, std::move(answer), out);
}

// Into the oldest open step of its bundle. There may be some of its rank in there: if it had to
// wait for that to close, two ranks that were left out of different bundles, or by different
// shards, could wait for steps that close with none but the other.
void SyncShard::TakeLate(protocol::Exchange exchange, uint32_t checksum) {
  ++stats_.late_contributions;
  const uint64_t step = closed_[exchange.bundle] ? StepAfter(open_step_) : open_step_;
  OpenBundle* const open = FindOrOpen(step, exchange.bundle);
  stats_.held_bytes -= open->held_bytes();
  open->AdmitLate(exchange.sender.rank, exchange.step, checksum, exchange.rate,
                  std::move(exchange.frames));
  stats_.held_bytes += open->held_bytes();
}

}  // namespace sluice::server
