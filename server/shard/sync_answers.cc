// SPDX-License-Identifier: Apache-2.0
#include "server/shard/sync_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/result_log.h"

namespace sluice::server {

SyncAnswers::SyncAnswers(const ShardOptions* options, ShardStats* stats, RequestFence* fence,
                         RankTable* ranks, const std::vector<BundleLayout>* bundles)
    : options_(*options), stats_(*stats), fence_(*fence), ranks_(*ranks), bundles_(*bundles) {}

// The first contribution on a stream is answered, so that its sender learns the process's identity.
// Contributions that may have to be resent are answered. Forwarded contributions are answered too:
// the parent job's results arrive only when the whole step closes, and the sender may need credit
// before.
void SyncAnswers::Admitted(StreamId stream, const protocol::ExchangeRequest& exchange,
                           uint64_t bytes, OpenBundle* open, Effects* out) {
  const uint32_t rank = exchange.sender.rank;
  if (!options_.forwards_sums && !options_.replay &&
      ranks_.MayStayUnanswered(rank, stream, bytes)) {
    ranks_.AddUnanswered(rank, bytes);
    open->SetUnanswered(rank, bytes);
    return;
  }
  ranks_.NoteAnswer(rank, stream);
  fence_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
}

void SyncAnswers::Repeat(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out) {
  ++stats_.repeats;
  fence_.Answer(stream, exchange, protocol::Outcome::kPending, "", out);
}

void SyncAnswers::Ask(StreamId stream, const protocol::ExchangeRequest& exchange,
                      uint64_t open_step, Effects* out) {
  fence_.AskFor(stream, exchange, options_.replay ? open_step : exchange.step, out);
}

void SyncAnswers::Busy(StreamId stream, const protocol::ExchangeRequest& exchange,
                       absl::Duration waited, Effects* out) {
  ++stats_.refused_busy;
  auto answer = std::make_shared<protocol::ExchangeReply>();
  answer->outcome = protocol::Outcome::kBusy;
  answer->step = exchange.step;
  answer->bundle = exchange.bundle;
  answer->retry_after_ms = static_cast<uint32_t>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(waited / 8), options_.busy_retry_ms, options_.busy_retry_ms_max));
  out->push_back(SendReply{stream, std::move(answer)});
}

void SyncAnswers::Result(StreamId stream, std::shared_ptr<const protocol::ExchangeReply> answer,
                         Effects* out) {
  stats_.bytes_out += ResultBytes(*answer);
  if (answer->record.n > 0) {
    stats_.dense_bytes_out += sizeof(float) * bundles_[answer->bundle].elements;
  }
  out->push_back(SendReply{stream, std::move(answer)});
}

void SyncAnswers::ResultAt(StreamId stream, const protocol::ExchangeReply& result,
                           uint64_t open_step, Effects* out) {
  auto answer = std::make_shared<protocol::ExchangeReply>(result);
  answer->open_step = open_step;
  Result(stream, std::move(answer), out);
}

void SyncAnswers::NoResult(StreamId stream, const protocol::ExchangeRequest& exchange,
                           const Forgotten& facts, Effects* out) {
  // The step precedes this process. A worker without open work asks whether data was lost.
  if (options_.replay && exchange.step < options_.first_step) {
    Ask(stream, exchange, facts.open_step, out);
    return;
  }
  std::string why =
      absl::StrCat(PlaceOf(exchange), ": the step is over, and its result is no longer kept; step ",
                   facts.open_step, " is open");
  const bool was_applied = exchange.step <= ranks_.acked(exchange.sender.rank);
  if (!facts.is_member && !was_applied) {
    absl::StrAppend(&why, ", and results are kept from step ", facts.kept_from,
                    " on: this worker is too far behind to catch up, and joins again with the "
                    "newest checkpoint; if this repeats, raise "
                    "checkpoint.replay_limit, or lower checkpoint.interval");
    fence_.ShutOut(stream, exchange, std::move(why), out);
    return;
  }
  if (ranks_.MayBeInherited(exchange) && !was_applied) {
    absl::StrAppend(&why, ", and results are kept from step ", facts.kept_from,
                    " on; raise checkpoint.replay_limit, or lower checkpoint.interval");
    GiveUpReplay(stream, exchange, std::move(why), out);
    return;
  }
  // A late repeat of an applied contribution does not count as an invalid request of the rank.
  ++stats_.refused_invalid;
  fence_.Answer(stream, exchange, protocol::Outcome::kInvalid, std::move(why), out);
}

void SyncAnswers::OtherBytes(StreamId stream, const protocol::ExchangeRequest& exchange,
                             uint32_t had, uint32_t got, Effects* out) {
  const std::string checksums = absl::StrCat("(checksum ", absl::Hex(had, absl::kZeroPad8),
                                             ", now ", absl::Hex(got, absl::kZeroPad8), ")");
  if (!ranks_.MayBeInherited(exchange)) {
    fence_.Refuse(stream, exchange,
                  absl::InvalidArgumentError(
                      absl::StrCat(PlaceOf(exchange), ": was sent before with other bytes ",
                                   checksums, "; a retry must repeat the bytes")),
                  out);
    return;
  }
  GiveUpReplay(stream, exchange,
               absl::StrCat(PlaceOf(exchange),
                            ": the worker that holds the rank now sent other "
                            "bytes than its predecessor ",
                            checksums,
                            ": training is not deterministic, so the rank cannot be repaired in "
                            "place"),
               out);
}

void SyncAnswers::OtherPlan(StreamId stream, const protocol::ExchangeRequest& exchange,
                            uint64_t plan_id, Effects* out) {
  GiveUpReplay(stream, exchange,
               absl::StrCat(PlaceOf(exchange), ": is coded by plan ", exchange.plan_id,
                            ", and the result was by plan ", plan_id,
                            "; all processes that knew this shard's plan are lost"),
               out);
}

void SyncAnswers::GiveUpReplay(StreamId stream, const protocol::ExchangeRequest& exchange,
                               std::string why, Effects* out) {
  ++stats_.not_reproducible;
  fence_.Answer(stream, exchange, protocol::Outcome::kBusy, "", out);
  out->emplace_back(NotReproducible{exchange.sender.rank, exchange.step, std::move(why)});
}

void SyncAnswers::NotAwaited(StreamId stream, const protocol::ExchangeRequest& exchange,
                             Effects* out) {
  fence_.Refuse(
      stream, exchange,
      InvalidRequest(exchange,
                     "is work of a newcomer that no step waits for: it has to skip for now"),
      out);
}

}  // namespace sluice::server
