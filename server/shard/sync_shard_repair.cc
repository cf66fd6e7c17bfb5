// SPDX-License-Identifier: Apache-2.0
// Implements answers to requests for closed bundles, and a shard's part in repairs. The shard
// resends earlier answers to a worker that replays its steps, and a restarted shard replays its own
// steps from the data that workers kept. Late work of a rank joins an open step. A newcomer is
// answered until it is a member.
#include <algorithm>
#include <optional>
#include <utility>

#include "compress/frame.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

// The number of steps that a worker can keep contributions to. Each of them has a frame, except for
// skipped steps.
uint64_t StepsKept(const ShardOptions& options) {
  constexpr uint64_t kSkippedSteps = uint64_t{1} << 20;
  return options.replay_bytes / compress::kFrameHeaderSize + kSkippedSteps;
}

}  // namespace

absl::Status SyncShard::SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) {
  const absl::StatusOr<std::vector<uint32_t>> replaced =
      gate_.SetMembership(generation, std::move(incarnations));
  if (!replaced.ok()) return replaced.status();
  for (const uint32_t rank : *replaced) {
    ranks_.Replace(rank, steps_.next_step());
    steps_.ForgetUnanswered(rank);
    Vacate(rank);
  }
  ForgetResults();
  return absl::OkStatus();
}

void SyncShard::ReleaseResults(uint64_t durable_step) {
  released_step_ = std::max(released_step_, durable_step);
  ForgetResults();
}

void SyncShard::ForgetResults() {
  std::optional<uint64_t> step =
      ranks_.LowestAcked([this](uint32_t rank) { return gate_.present(rank); }, forgotten_step_);
  if (options_.replay_bytes > 0) step = std::min(step.value_or(0), released_step_);
  if (step.value_or(0) <= forgotten_step_) return;
  forgotten_step_ = *step;
  sink_.log().ForgetUpTo(forgotten_step_);
}

uint64_t SyncShard::results_from() const {
  return options_.replay_bytes > 0 ? sink_.log().complete_from() : 0;
}

// A step that is too far ahead is an error of the sender, which CheckAddress reports.
bool SyncShard::IsAhead(const protocol::ExchangeRequest& exchange) const {
  if (!options_.replay || exchange.bundle >= bundles_.size()) return false;
  const uint64_t next = steps_.next_step();
  if (exchange.step > next) return exchange.step - next <= StepsKept(options_);
  return exchange.acked_step >= steps_.step();
}

bool SyncShard::HasArrived(const protocol::ExchangeRequest& exchange) const {
  if (options_.exchange.quorum > 0 &&
      exchange.step > ranks_.admitted(exchange.bundle, exchange.sender.rank).step) {
    return false;
  }
  if (steps_.IsClosed(exchange.step, exchange.bundle)) return true;
  const OpenBundle* const open = steps_.Find(exchange.step, exchange.bundle);
  return open != nullptr && open->arrived(exchange.sender.rank);
}

void SyncShard::HandleKeys(StreamId stream, const protocol::ExchangeRequest& exchange,
                           Effects* out) {
  const OpenBundle* open = steps_.Find(exchange.step, exchange.bundle);
  if (open == nullptr || !open->arrived(exchange.sender.rank) ||
      !closing_.IsMember(exchange.bundle, exchange.sender.rank, exchange.step)) {
    answers_.Ask(stream, exchange, steps_.step(), out);
    return;
  }
  const uint32_t had = open->checksum(exchange.sender.rank);
  const uint32_t got = protocol::BundleChecksum(exchange);
  if (!exchange.checksums.empty() && got != had && !IsStoodFor(exchange)) {
    answers_.OtherBytes(stream, exchange, had, got, out);
    return;
  }
  answers_.Repeat(stream, exchange, out);
}

void SyncShard::HandleClosed(StreamId stream, protocol::ExchangeRequest exchange, Effects* out) {
  std::shared_ptr<const protocol::ExchangeReply> result =
      sink_.log().Find(exchange.step, exchange.bundle);
  const bool is_member = closing_.IsMember(exchange.bundle, exchange.sender.rank, exchange.step);
  if (result == nullptr) {
    answers_.NoResult(stream, exchange,
                      {.open_step = steps_.step(),
                       .kept_from = sink_.log().complete_from(),
                       .is_member = is_member},
                      out);
    return;
  }
  if (!is_member) {
    AnswerLateJoiner(stream, exchange, *result, out);
    return;
  }
  const std::vector<protocol::Included>& included = result->record.included;
  const auto own =
      std::find_if(included.begin(), included.end(), [&](const protocol::Included& of) {
        return of.rank == exchange.sender.rank && of.origin_step == exchange.step;
      });
  if (own == included.end()) {
    HandleLate(stream, std::move(exchange), *result, out);
    return;
  }
  const uint32_t had = own->checksum;
  const uint32_t got = protocol::BundleChecksum(exchange);
  const bool says_bytes = !exchange.keys_only || !exchange.checksums.empty();
  if (got != had && says_bytes && !IsStoodFor(exchange)) {
    answers_.OtherBytes(stream, exchange, had, got, out);
    return;
  }
  // Two plans may encode a contribution (such as a skip) identically but its result differently.
  const bool repairs = ranks_.MayBeInherited(exchange);
  if (repairs && says_bytes && options_.exchange.control.measures() &&
      exchange.plan_id != result->record.plan_id) {
    answers_.OtherPlan(stream, exchange, result->record.plan_id, out);
    return;
  }
  ++stats_.repeats;
  answers_.Result(stream, std::move(result), out);
}

// True if the rank's predecessor may have contributed to the step. That contribution stays, and the
// newcomer's skip adds nothing.
bool SyncShard::IsStoodFor(const protocol::ExchangeRequest& exchange) const {
  return options_.exchange.elastic() && ranks_.MayBeInherited(exchange);
}

// Answers a newcomer that replays closed steps. The open step in the answer is beyond the replayed
// step, which shows the newcomer that no bundle waited for it.
void SyncShard::AnswerLateJoiner(StreamId stream, const protocol::ExchangeRequest& exchange,
                                 const protocol::ExchangeReply& result, Effects* out) {
  if (!exchange.skip && !exchange.keys_only) {
    answers_.NotAwaited(stream, exchange, out);
    return;
  }
  answers_.ResultAt(stream, result, std::max(steps_.step(), StepAfter(options_, exchange.step)),
                    out);
}

// Handles a contribution whose bundle has closed without it. `result` is the result of that bundle.
void SyncShard::HandleLate(StreamId stream, protocol::ExchangeRequest exchange,
                           const protocol::ExchangeReply& result, Effects* out) {
  const uint32_t rank = exchange.sender.rank;
  const RankTable::Admitted last = ranks_.admitted(exchange.bundle, rank);
  const bool known = exchange.step <= last.step;
  if (!known && exchange.keys_only) {
    gate_.AskFor(stream, exchange, exchange.step, out);
    return;
  }
  const uint32_t checksum = protocol::BundleChecksum(exchange);
  const bool says_bytes = !exchange.keys_only || !exchange.checksums.empty();
  if (exchange.step == last.step && says_bytes && checksum != last.checksum) {
    answers_.OtherBytes(stream, exchange, last.checksum, checksum, out);
    return;
  }
  if (known) {
    ++stats_.repeats;
  } else {
    CountIn(exchange);
    ranks_.SetAdmitted(exchange.bundle, rank, {exchange.step, checksum});
    // A skip for a closed step changes nothing, and buffers count only in their own step.
    if (!exchange.skip && !bundles_[exchange.bundle].buffers) {
      AddLate(std::move(exchange), checksum);
    }
  }
  // The answer contains the step that is open now. The rank may skip the steps before that.
  answers_.ResultAt(stream, result, steps_.step(), out);
}

// If late work waited for a step that has no work of the rank yet, ranks could block each other:
// two ranks left out of different bundles, or by different shards, could each wait for a step that
// cannot close without the other rank.
void SyncShard::AddLate(protocol::ExchangeRequest exchange, uint32_t checksum) {
  ++stats_.late_contributions;
  stats_.held_bytes += protocol::TotalBytes(exchange.frames);
  steps_.AddLate(std::move(exchange), checksum, closing_);
}

}  // namespace sluice::server
