// SPDX-License-Identifier: Apache-2.0
// How a ShardSender restores a restarted shard: it asks which contributions are lost and resends
// them unchanged, step by step. docs/protocol.md explains this under "Repair".
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "worker/core/session.h"
#include "worker/core/shard_sender.h"

namespace sluice::worker {
namespace {

// No shard has reached a step this far ahead: a shard is at most one step ahead of a worker that it
// waits for, and admits contributions at most one step ahead of its open step.
constexpr uint64_t kBeyondAllSteps = 3;

std::shared_ptr<const protocol::ExchangeRequest> KeysOf(const protocol::Sender& sender,
                                                        uint64_t step, uint32_t bundle) {
  auto keys = std::make_shared<protocol::ExchangeRequest>();
  keys->sender = sender;
  keys->step = step;
  keys->bundle = bundle;
  keys->keys_only = true;
  return keys;
}

}  // namespace

void ShardSender::ShardReplaced(Effects* effects) {
  // Without a replay buffer, nothing can be resent: the job rolls back, and all workers find out.
  if (kept_->from() == 0) return;
  replay_ = Replay();
  for (Flight& flight : flights_) {
    if (flight.phase == Phase::kSent || flight.phase == Phase::kAdmitted) {
      flight.phase = Phase::kToSend;
    }
    flight.repeats_asked = 0;
  }
  bytes_in_flight_ = 0;
  next_send_ = 0;
  if (!last_sent_.has_value()) return;
  replay_.asking = true;
  AskWhatIsLost(effects);
}

void ShardSender::Resume(Effects* effects) {
  if (replay_.asking) return AskWhatIsLost(effects);
  if (!HasUnanswered()) return AskForLastSent(effects);
  SendMore(effects);
}

// Sends the keys of a step that no shard can have reached, so that the answer names the shard's
// step. The keys of a sent bundle would not reveal the loss of other bundles if that bundle was
// resent and arrived first.
void ShardSender::AskWhatIsLost(Effects* effects) {
  asked_step_ = step_ + kBeyondAllSteps;
  effects->push_back(SendExchange{shard_, KeysOf(options_.sender, asked_step_, 0)});
}

// Sends the keys of a bundle that has its result, so that the answer shows which process serves the
// shard.
void ShardSender::AskForLastSent(Effects* effects) const {
  if (kept_->from() == 0 || !last_sent_.has_value()) return;
  effects->push_back(
      SendExchange{shard_, KeysOf(options_.sender, last_sent_->step, last_sent_->bundle)});
}

absl::Status ShardSender::CannotAsk(const protocol::ExchangeReply& answer) const {
  return RollbackError(absl::StrCat(
      "shard ", shard_, " was restarted and does not say which steps it lacks: ", answer.message));
}

absl::StatusOr<ShardSender::News> ShardSender::AnswerNeedOfSteps(
    const protocol::ExchangeReply& answer, uint64_t from, bool is_awaited, Effects* effects) {
  if (is_awaited && from > answer.step) {
    return RollbackError(absl::StrCat("shard ", shard_, " was restarted from a checkpoint ",
                                      "past step ", answer.step, ", where rank ",
                                      options_.sender.rank, " is"));
  }
  // The NEED answers an earlier contribution or a repeated question.
  if (replay_.step != 0 || answer.step > step_) return News::kNone;
  // The worker has the result and keeps nothing that it could resend.
  if (from == answer.step && kept_->from() == 0) return News::kNone;
  return BeginReplay(from, effects);
}

absl::StatusOr<ShardSender::News> ShardSender::BeginReplay(uint64_t from, Effects* effects) {
  if (!last_sent_.has_value() || from > last_sent_->step) return EndReplay(effects);
  if (kept_->from() == 0 || from < kept_->from()) {
    return RollbackError(absl::StrCat(
        "shard ", shard_, " was restarted and asks for step ", from, ", but rank ",
        options_.sender.rank, " keeps ",
        kept_->from() == 0 ? "no contributions"
                           : absl::StrCat("contributions from step ", kept_->from(), " on"),
        " (checkpoint.replay_limit is ", options_.replay_bytes, " bytes)"));
  }
  effects->push_back(ReplayBegun{shard_, from, last_sent_->step});
  return ReplayStep(from, effects);
}

// Unresolved bundles of the current step are sent in the usual way.
absl::StatusOr<ShardSender::News> ShardSender::ReplayStep(uint64_t step, Effects* effects) {
  next_send_ = 0;
  replay_ = Replay();
  replay_.step = step;
  replay_.flights.assign(flights_.size(), Flight{.phase = Phase::kResolved});
  for (uint32_t bundle = 0; bundle < flights_.size(); ++bundle) {
    if (step == step_ && flights_[bundle].phase != Phase::kResolved) continue;
    const ReplayBuffer::Entry* const kept = kept_->Find(shard_, step, bundle);
    if (kept == nullptr) {
      return RollbackError(absl::StrCat("shard ", shard_, " was restarted and replays step ", step,
                                        ", which rank ", options_.sender.rank,
                                        " no longer keeps (checkpoint.replay_limit is ",
                                        options_.replay_bytes, " bytes)"));
    }
    Flight& flight = replay_.flights[bundle];
    flight.phase = Phase::kToSend;
    flight.exchange = ForReplay(*kept);
    flight.bytes = protocol::TotalBytes(flight.exchange->frames);
    ++replay_.unresolved;
  }
  if (replay_.unresolved == 0) {
    Check(step == step_, "only the current step may have nothing to resend");
    return EndReplay(effects);
  }
  SendMore(effects);
  return News::kNone;
}

ShardSender::News ShardSender::EndReplay(Effects* effects) {
  replay_ = Replay();
  next_send_ = 0;
  SendMore(effects);
  return News::kReplayEnded;
}

// The contribution has a result. Returns it unchanged, except that it adds the plan that shard 0's
// previous process announced. Policies depend on measurements, so the new process cannot derive
// that plan again.
std::shared_ptr<const protocol::ExchangeRequest> ShardSender::ForReplay(
    const ReplayBuffer::Entry& kept) const {
  if (!options_.exchange.control.makes_plans() || shard_ != 0 || kept.exchange->bundle != 0)
    return kept.exchange;
  auto again = std::make_shared<protocol::ExchangeRequest>(*kept.exchange);
  again->answered = true;
  again->announced = kept.announced;
  return again;
}

absl::StatusOr<ShardSender::News> ShardSender::ResolveRepeat(uint32_t bundle, Effects* effects) {
  Land(&replay_.flights[bundle]);
  if (--replay_.unresolved == 0) {
    return replay_.step < step_ ? ReplayStep(replay_.step + 1, effects) : EndReplay(effects);
  }
  SendMore(effects);
  return News::kNone;
}

// A worker that has applied a result must never get a different one.
absl::Status ShardSender::CheckRepeat(const protocol::ExchangeReply& answer) const {
  const ReplayBuffer::Entry* const kept = kept_->Find(shard_, answer.step, answer.bundle);
  if (kept == nullptr || !kept->result_checksum.has_value()) return absl::OkStatus();
  const uint32_t before = *kept->result_checksum;
  const uint32_t frames = protocol::BundleChecksum(answer.results);
  if (answer.record.result_checksum == before && frames == before) {
    const bool same_plan =
        kept->announced == answer.plan ||
        (kept->announced != nullptr && answer.plan != nullptr && *kept->announced == *answer.plan);
    if (same_plan) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "shard ", shard_, " announces a different compression plan with step ", answer.step,
        " than before its restart; restart the job from an earlier checkpoint, with "
        "the same build everywhere"));
  }
  return absl::DataLossError(absl::StrFormat(
      "shard %d closed step %d, bundle %d differently from before (checksum %08x, of its frames "
      "%08x; it was %08x): the state that it restored, or that was resent to it, differs from "
      "before; restart the job from an earlier checkpoint, with the same build everywhere",
      shard_, answer.step, answer.bundle, answer.record.result_checksum, frames, before));
}

}  // namespace sluice::worker
