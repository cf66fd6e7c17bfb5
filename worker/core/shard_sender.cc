// SPDX-License-Identifier: Apache-2.0
#include "worker/core/shard_sender.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::worker {
namespace {

// A shard that requests more resends of the same bundle is faulty.
constexpr uint32_t kRepeatsMax = 8;
// While one bundle's contributions arrive and the results of another leave, two more bundles keep
// both directions of the link busy.
constexpr uint32_t kLeadBundles = 4;
constexpr absl::Duration kRetryDelayMin = absl::Milliseconds(1);

// Returns the step from which on the shard lacks contributions, according to its NEED.
uint64_t FirstMissing(const protocol::ExchangeReply& answer) {
  return answer.need_from == 0 ? answer.step : answer.need_from;
}

std::string BundleName(uint32_t shard, const protocol::ExchangeReply& answer) {
  return absl::StrCat("bundle ", answer.bundle, " of shard ", shard, " at step ", answer.step);
}

}  // namespace

ShardSender::ShardSender(uint32_t shard, const PipelineOptions& options, ReplayBuffer* kept)
    : shard_(shard),
      options_(options),
      kept_(kept),
      flights_(options.layout.bundles[shard].size(), Flight{.phase = Phase::kResolved}) {}

void ShardSender::StartStep(uint64_t step) {
  step_ = step;
  flights_.assign(flights_.size(), Flight());
  next_send_ = 0;
  // Rounded up, because 0 means that there is no limit.
  lead_bytes_ = static_cast<uint64_t>(std::ceil(lead_share_ * static_cast<double>(step_bytes_)));
  step_bytes_ = 0;
}

void ShardSender::Send(std::shared_ptr<const protocol::ExchangeRequest> exchange,
                       Effects* effects) {
  Flight& flight = flights_[exchange->bundle];
  flight.bytes = protocol::TotalBytes(exchange->frames);
  flight.checksum = protocol::BundleChecksum(exchange->frames);
  flight.phase = Phase::kToSend;
  step_bytes_ += flight.bytes;
  kept_->Add(shard_, exchange);
  flight.exchange = std::move(exchange);
  SendMore(effects);
}

ShardSender::Flight& ShardSender::FlightToSend(uint32_t bundle) {
  Flight& flight = flights_[bundle];
  if (replay_.step == 0) return flight;
  const bool is_current = replay_.step == step_;
  return is_current && flight.phase != Phase::kResolved ? flight : replay_.flights[bundle];
}

ShardSender::Flight* ShardSender::FindFlight(uint64_t step, uint32_t bundle) {
  if (replay_.step != 0 && replay_.step == step &&
      replay_.flights[bundle].phase != Phase::kResolved) {
    return &replay_.flights[bundle];
  }
  if (step != step_ || flights_[bundle].phase == Phase::kResolved) return nullptr;
  return &flights_[bundle];
}

bool ShardSender::HasUnanswered() const {
  if (replay_.step != 0) return true;
  return std::any_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
    return flight.phase != Phase::kGathering && flight.phase != Phase::kResolved;
  });
}

void ShardSender::SendMore(Effects* effects) {
  if (paused_ || replay_.asking) return;
  for (; next_send_ < flights_.size(); ++next_send_) {
    Flight& flight = FlightToSend(next_send_);
    if (flight.phase == Phase::kGathering) return;
    if (flight.phase != Phase::kToSend) continue;
    const uint64_t bytes = bytes_in_flight_ + flight.bytes;
    if (bytes_in_flight_ > 0 && bytes > options_.window_bytes) return;
    if (!MayLead(flight.bytes)) return;
    bytes_in_flight_ = bytes;
    flight.phase = Phase::kSent;
    if (flight.exchange->step == step_) last_sent_ = {step_, next_send_};
    effects->push_back(SendExchange{shard_, flight.exchange});
  }
}

bool ShardSender::MayLead(uint64_t bytes) const {
  // A replay must not wait for results of the open step.
  if (lead_bytes_ == 0 || replay_.step != 0) return true;
  uint64_t unresolved = 0;
  uint32_t bundles = 0;
  for (uint32_t bundle = 0; bundle < next_send_; ++bundle) {
    const Flight& flight = flights_[bundle];
    if (flight.phase != Phase::kSent && flight.phase != Phase::kAdmitted) continue;
    unresolved += flight.bytes;
    ++bundles;
  }
  return bundles < kLeadBundles || unresolved + bytes <= lead_bytes_;
}

void ShardSender::SendAgain(uint32_t bundle, Flight* flight) {
  if (flight->phase == Phase::kSent) bytes_in_flight_ -= flight->bytes;
  flight->phase = Phase::kToSend;
  next_send_ = std::min(next_send_, bundle);
}

void ShardSender::StreamReset(Effects* effects) {
  for (std::vector<Flight>* flights : {&flights_, &replay_.flights}) {
    for (uint32_t bundle = 0; bundle < flights->size(); ++bundle) {
      Flight& flight = (*flights)[bundle];
      if (flight.phase != Phase::kSent && flight.phase != Phase::kAdmitted) continue;
      SendAgain(bundle, &flight);
    }
  }
  Resume(effects);
}

void ShardSender::RetryDue(Effects* effects) {
  paused_ = false;
  Resume(effects);
}

void ShardSender::PauseFor(uint32_t retry_after_ms, Effects* effects) {
  if (paused_) return;
  paused_ = true;
  effects->push_back(
      RetryLater{shard_, std::max(kRetryDelayMin, absl::Milliseconds(retry_after_ms))});
}

absl::StatusOr<ShardSender::News> ShardSender::Answer(const protocol::ExchangeReply& answer,
                                                      Effects* effects) {
  if (answer.bundle >= flights_.size()) return NotSent(answer);
  const uint64_t from = FirstMissing(answer);
  if (replay_.asking && answer.outcome == protocol::Outcome::kNeed) {
    return BeginReplay(from, effects);
  }
  if (replay_.asking && answer.outcome == protocol::Outcome::kBusy) {
    PauseFor(answer.retry_after_ms, effects);
    return News::kNone;
  }
  Flight* const flight = FindFlight(answer.step, answer.bundle);
  if (answer.outcome == protocol::Outcome::kNeed && (flight == nullptr || from != answer.step)) {
    return AnswerNeedOfSteps(answer, from, /*is_awaited=*/flight != nullptr, effects);
  }
  if (answer.outcome == protocol::Outcome::kResult) {
    absl::Status same = CheckRepeat(answer);
    if (!same.ok()) return same;
  }
  absl::Status handled;
  if (flight == nullptr || flight->phase == Phase::kGathering) {
    handled = AnswerUnawaited(answer, /*is_gathering=*/flight != nullptr, effects);
  } else if (answer.outcome != protocol::Outcome::kResult) {
    handled = AnswerFlight(answer, flight, effects);
  } else if (flight == &flights_[answer.bundle]) {
    return News::kResult;
  } else {
    return ResolveRepeat(answer.bundle, effects);
  }
  if (!handled.ok()) return handled;
  return News::kNone;
}

absl::Status ShardSender::AnswerUnawaited(const protocol::ExchangeReply& answer, bool is_gathering,
                                          Effects* effects) {
  const bool sent = answer.step < step_ || (answer.step == step_ && !is_gathering);
  // This BUSY may answer the question on a new stream. It does not show whether the process is new.
  // A new process must get the kept contributions first, so the worker asks again.
  const bool asks_again =
      answer.outcome == protocol::Outcome::kBusy && sent && !HasUnanswered() && kept_->from() > 0;
  if (asks_again) PauseFor(answer.retry_after_ms, effects);
  // A shard sends results to the present holder of the rank, even for work of an earlier holder.
  if (sent || answer.outcome == protocol::Outcome::kResult) return absl::OkStatus();
  // The question was sent twice, and the shard has answered the first copy.
  if (answer.step <= asked_step_ && !replay_.asking) return absl::OkStatus();
  return replay_.asking ? CannotAsk(answer) : NotSent(answer);
}

absl::Status ShardSender::AnswerFlight(const protocol::ExchangeReply& answer, Flight* flight,
                                       Effects* effects) {
  switch (answer.outcome) {
    case protocol::Outcome::kPending:
      // A bundle that waits to be resent keeps waiting, because its result may get lost.
      if (flight->phase != Phase::kSent) return absl::OkStatus();
      flight->phase = Phase::kAdmitted;
      bytes_in_flight_ -= flight->bytes;
      break;
    case protocol::Outcome::kNeed:
      if (++flight->repeats_asked > kRepeatsMax) {
        return absl::InternalError(absl::StrCat("shard ", shard_, " asked ", kRepeatsMax + 1,
                                                " times for ", BundleName(shard_, answer),
                                                ", which it had been sent"));
      }
      SendAgain(answer.bundle, flight);
      break;
    case protocol::Outcome::kBusy:
      SendAgain(answer.bundle, flight);
      PauseFor(answer.retry_after_ms, effects);
      break;
    case protocol::Outcome::kInvalid:
      // The shard rejects a request that was sent before this worker knew of the new process.
      if (flight->phase == Phase::kToSend) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard_, " refused ",
                                                     BundleName(shard_, answer), " from rank ",
                                                     options_.sender.rank, ": ", answer.message));
    case protocol::Outcome::kResult:
    case protocol::Outcome::kFenced:
      Check(false, "the callers handle results and fences");
  }
  SendMore(effects);
  return absl::OkStatus();
}

absl::Status ShardSender::NotSent(const protocol::ExchangeReply& answer) const {
  return absl::InternalError(
      absl::StrCat("shard ", shard_, " answered ", BundleName(shard_, answer), ", which rank ",
                   options_.sender.rank, " has not sent: do both run the same version?"));
}

void ShardSender::Land(Flight* flight) {
  if (flight->phase == Phase::kSent) bytes_in_flight_ -= flight->bytes;
  flight->phase = Phase::kResolved;
  flight->exchange.reset();
}

void ShardSender::Resolve(const protocol::ExchangeReply& answer, Effects* effects) {
  Land(&flights_[answer.bundle]);
  if (ReplayBuffer::Entry* kept = kept_->Find(shard_, step_, answer.bundle)) {
    kept->result_checksum = answer.record.result_checksum;
    kept->announced = answer.plan;
  }
  SendMore(effects);
}

}  // namespace sluice::worker
