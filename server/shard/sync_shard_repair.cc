// How a shard takes part in repairs: it answers again what it answered before, to a worker that
// goes through its steps anew, and goes through its own with what the workers kept.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {

absl::Status SyncShard::SetMembership(uint32_t generation, std::vector<uint64_t> incarnations) {
  const absl::StatusOr<std::vector<uint32_t>> replaced =
      gate_.SetMembership(generation, std::move(incarnations));
  if (!replaced.ok()) return replaced.status();
  for (const uint32_t rank : *replaced) {
    // It has no result yet, and no stream.
    ranks_[rank] = RankState();
    ranks_[rank].inherited = StepAfter(open_step_);
    for (const OpenStep* const step : {&open_, &next_}) {
      for (const std::unique_ptr<OpenBundle>& open : step->bundles) {
        if (open != nullptr) open->SetUnanswered(rank, 0);
      }
    }
    if (options_.elastic) Vacate(rank);
  }
  ForgetResults();
  return absl::OkStatus();
}

void SyncShard::ReleaseResults(uint64_t durable_step) {
  released_step_ = std::max(released_step_, durable_step);
  ForgetResults();
}

void SyncShard::ForgetResults() {
  std::optional<uint64_t> step;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (gate_.present(rank)) step = std::min(step.value_or(ranks_[rank].acked), ranks_[rank].acked);
  }
  if (options_.replay_bytes > 0) step = std::min(step.value_or(0), released_step_);
  if (step.value_or(0) > 0) log_.ForgetUpTo(*step);
}

uint64_t SyncShard::results_from() const {
  return options_.replay_bytes > 0 ? log_.complete_from() : 0;
}

bool SyncShard::IsAhead(const protocol::Exchange& exchange) const {
  return options_.replay && exchange.bundle < bundles_.size() &&
         (exchange.step > StepAfter(open_step_) || exchange.acked_step >= open_step_);
}

bool SyncShard::HasArrived(const protocol::Exchange& exchange) const {
  if (options_.quorum > 0 &&
      exchange.step > admitted_[exchange.bundle][exchange.sender.rank].step) {
    return false;
  }
  if (IsClosed(exchange.step, exchange.bundle)) return true;
  const OpenBundle* const open = FindOpen(exchange.step, exchange.bundle);
  return open != nullptr && open->arrived(exchange.sender.rank);
}

void SyncShard::HandleKeys(StreamId stream, const protocol::Exchange& exchange, Effects* out) {
  const OpenBundle* open = FindOpen(exchange.step, exchange.bundle);
  if (open == nullptr || !open->arrived(exchange.sender.rank) ||
      !IsMember(exchange.bundle, exchange.sender.rank, exchange.step)) {
    gate_.AskFor(stream, exchange, NeededFrom(exchange), out);
    return;
  }
  const uint32_t had = open->checksum(exchange.sender.rank);
  const uint32_t got = protocol::BundleChecksum(exchange);
  if (!exchange.checksums.empty() && got != had && !IsStoodFor(exchange)) {
    RefuseOtherBytes(stream, exchange, had, got, out);
    return;
  }
  ++stats_.repeats;
  gate_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
}

void SyncShard::HandleClosed(StreamId stream, protocol::Exchange exchange, Effects* out) {
  std::shared_ptr<const protocol::ExchangeAnswer> result =
      log_.Find(exchange.step, exchange.bundle);
  if (result == nullptr) {
    HandleForgotten(stream, exchange, out);
    return;
  }
  if (!IsMember(exchange.bundle, exchange.sender.rank, exchange.step)) {
    AnswerLearner(stream, exchange, *result, out);
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
    RefuseOtherBytes(stream, exchange, had, got, out);
    return;
  }
  // Two plans may code a bundle alike on the way up, such as one that is skipped, but not its
  // result.
  const bool repairs = exchange.step <= ranks_[exchange.sender.rank].inherited;
  if (repairs && says_bytes && options_.control.measures() &&
      exchange.plan_id != result->record.plan_id) {
    GiveUpReplay(stream, exchange,
                 absl::StrCat(PlaceOf(exchange), ": is coded by plan ", exchange.plan_id,
                              ", and the result was by plan ", result->record.plan_id,
                              "; who knew of the plan that this shard was told of is lost"),
                 out);
    return;
  }
  ++stats_.repeats;
  SendResult(stream, std::move(result), out);
}

void SyncShard::HandleForgotten(StreamId stream, const protocol::Exchange& exchange, Effects* out) {
  // Before this process's time: a worker that has nothing unresolved asks whether anything is lost.
  if (options_.replay && exchange.step < options_.first_step) {
    gate_.AskFor(stream, exchange, NeededFrom(exchange), out);
    return;
  }
  const RankState& rank = ranks_[exchange.sender.rank];
  std::string why = absl::StrCat(
      PlaceOf(exchange), ": is over and its result no longer kept; step ", open_step_, " is open");
  const bool learns = !IsMember(exchange.bundle, exchange.sender.rank, exchange.step);
  if (learns && exchange.step > rank.acked) {
    absl::StrAppend(&why, ", and results are kept from step ", log_.complete_from(),
                    " on: this worker is too far behind to catch up, and joins again with the "
                    "newest checkpoint; if it does so again and again raise "
                    "checkpoint.replay_limit, or lower checkpoint.every");
    gate_.ShutOut(stream, exchange, std::move(why), out);
    return;
  }
  if (exchange.step <= rank.inherited && exchange.step > rank.acked) {
    absl::StrAppend(&why, ", and results are kept from step ", log_.complete_from(),
                    " on; raise checkpoint.replay_limit, or lower checkpoint.every");
    GiveUpReplay(stream, exchange, std::move(why), out);
    return;
  }
  // A late repeat of something long applied: not held against the rank.
  ++stats_.refused_invalid;
  gate_.Answer(stream, exchange, protocol::Outcome::kInvalid, std::move(why), out);
}

void SyncShard::RefuseOtherBytes(StreamId stream, const protocol::Exchange& exchange, uint32_t had,
                                 uint32_t got, Effects* out) {
  const std::string checksums = absl::StrCat("(checksum ", absl::Hex(had, absl::kZeroPad8),
                                             ", now ", absl::Hex(got, absl::kZeroPad8), ")");
  if (exchange.step > ranks_[exchange.sender.rank].inherited) {
    gate_.Refuse(stream, exchange,
                 absl::InvalidArgumentError(
                     absl::StrCat(PlaceOf(exchange), ": was sent before with other bytes ",
                                  checksums, "; a retry must repeat the bytes")),
                 out);
    return;
  }
  GiveUpReplay(stream, exchange,
               absl::StrCat(PlaceOf(exchange),
                            ": the worker that holds the rank now sent other "
                            "bytes than the one before it ",
                            checksums,
                            ": its training is not deterministic, so that it cannot be repaired in "
                            "place"),
               out);
}

void SyncShard::GiveUpReplay(StreamId stream, const protocol::Exchange& exchange, std::string why,
                             Effects* out) {
  ++stats_.not_reproducible;
  gate_.Answer(stream, exchange, protocol::Outcome::kBusy, "", out);
  out->emplace_back(NotReproducible{exchange.sender.rank, exchange.step, std::move(why)});
}

}  // namespace sluice::server
