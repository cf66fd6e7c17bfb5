// How a Pipeline restores a restarted shard: it asks which contributions are lost and resends them
// unchanged, step by step. docs/protocol.md, "Repair".
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "worker/core/pipeline.h"

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

void Pipeline::ShardReplaced(uint32_t shard, Effects* effects) {
  // Without a replay buffer, nothing can be resent: the job rolls back, and all workers find out.
  if (!status_.ok() || kept_.from() == 0) return;
  ShardState& state = shards_[shard];
  state.replay = Replay();
  for (Flight& flight : state.flights) {
    if (flight.phase == Phase::kSent || flight.phase == Phase::kAdmitted) {
      flight.phase = Phase::kToSend;
    }
    flight.repeats_asked = 0;
  }
  state.bytes_in_flight = 0;
  state.next_send = 0;
  if (!state.last_sent.has_value()) return;
  state.replay.asking = true;
  AskWhatIsLost(shard, effects);
}

// Sends the keys of a step that no shard can have reached, so that the answer names the shard's
// step. The keys of a sent bundle would not reveal the loss of other bundles if that bundle was
// resent and arrived first.
void Pipeline::AskWhatIsLost(uint32_t shard, Effects* effects) {
  const uint64_t step = step_ + kBeyondAllSteps;
  shards_[shard].asked_step = step;
  effects->push_back(SendExchange{shard, KeysOf(options_.sender, step, 0)});
}

void Pipeline::AskForLastSent(uint32_t shard, Effects* effects) const {
  const std::optional<SentBundle>& last = shards_[shard].last_sent;
  if (kept_.from() == 0 || !last.has_value()) return;
  effects->push_back(SendExchange{shard, KeysOf(options_.sender, last->step, last->bundle)});
}

absl::Status Pipeline::CannotAsk(uint32_t shard, const protocol::ExchangeReply& answer) const {
  return RollbackError(absl::StrCat(
      "shard ", shard, " was restarted and does not say which steps it lacks: ", answer.message));
}

bool Pipeline::HandleNeed(uint32_t shard, const protocol::ExchangeReply& answer, Effects* effects) {
  ShardState& state = shards_[shard];
  const uint64_t from = answer.need_from == 0 ? answer.step : answer.need_from;
  if (state.replay.asking) {
    BeginReplay(shard, from, effects);
    return true;
  }
  const Flight* const flight = FindFlight(&state, answer.step, answer.bundle);
  if (from == answer.step && flight != nullptr) return false;
  if (from > answer.step && flight != nullptr) {
    Fail(RollbackError(absl::StrCat("shard ", shard, " was restarted from a checkpoint ",
                                    "past step ", answer.step, ", where rank ",
                                    options_.sender.rank, " is")),
         effects);
    return true;
  }
  // This answers an earlier contribution or a repeated question.
  if (state.replay.step != 0 || answer.step > step_) return true;
  if (from == answer.step && kept_.from() == 0) return false;
  BeginReplay(shard, from, effects);
  return true;
}

void Pipeline::BeginReplay(uint32_t shard, uint64_t from, Effects* effects) {
  ShardState& state = shards_[shard];
  state.replay = Replay();
  state.next_send = 0;
  if (!state.last_sent.has_value() || from > state.last_sent->step) {
    ReleaseKept();
    return SendMore(shard, effects);
  }
  if (kept_.from() == 0 || from < kept_.from()) {
    return Fail(
        RollbackError(absl::StrCat(
            "shard ", shard, " was restarted and asks for step ", from, ", but rank ",
            options_.sender.rank, " keeps ",
            kept_.from() == 0 ? "no contributions"
                              : absl::StrCat("contributions from step ", kept_.from(), " on"),
            " (checkpoint.replay_limit is ", options_.replay_bytes, " bytes)")),
        effects);
  }
  effects->push_back(ReplayBegun{shard, from, state.last_sent->step});
  state.replay.step = from;
  PrepareReplay(shard, effects);
  if (status_.ok()) SendMore(shard, effects);
}

// Unresolved bundles of the open step are sent in the usual way.
void Pipeline::PrepareReplay(uint32_t shard, Effects* effects) {
  ShardState& state = shards_[shard];
  Replay& replay = state.replay;
  state.next_send = 0;
  replay.flights.assign(state.flights.size(), Flight());
  const bool is_open = replay.step == step_ && open_;
  for (uint32_t bundle = 0; bundle < replay.flights.size(); ++bundle) {
    Flight& flight = replay.flights[bundle];
    flight.phase = Phase::kResolved;
    if (is_open && state.flights[bundle].phase != Phase::kResolved) continue;
    const ReplayBuffer::Entry* const kept = kept_.Find(shard, replay.step, bundle);
    if (kept == nullptr) {
      return Fail(RollbackError(absl::StrCat("shard ", shard, " was restarted and replays step ",
                                             replay.step, ", which rank ", options_.sender.rank,
                                             " no longer keeps (checkpoint.replay_limit is ",
                                             options_.replay_bytes, " bytes)")),
                  effects);
    }
    flight.phase = Phase::kToSend;
    flight.exchange = SentAgain(shard, *kept);
    flight.bytes = protocol::TotalBytes(flight.exchange->frames);
    ++replay.unresolved;
  }
  if (replay.unresolved > 0) return;
  Check(is_open, "only the open step may have nothing to resend");
  replay = Replay();
  ReleaseKept();
}

// Returns the contribution unchanged, except that it adds the plan that shard 0's previous process
// announced. Policies depend on measurements, so the new process cannot derive that plan again.
std::shared_ptr<const protocol::ExchangeRequest> Pipeline::SentAgain(
    uint32_t shard, const ReplayBuffer::Entry& kept) const {
  if (!options_.makes_plans || shard != 0 || kept.exchange->bundle != 0 ||
      !kept.result_checksum.has_value()) {
    return kept.exchange;
  }
  auto again = std::make_shared<protocol::ExchangeRequest>(*kept.exchange);
  again->answered = true;
  again->announced = kept.announced;
  return again;
}

void Pipeline::ResolveRepeat(uint32_t shard, uint32_t bundle, Effects* effects) {
  ShardState& state = shards_[shard];
  Replay& replay = state.replay;
  Flight& flight = replay.flights[bundle];
  if (flight.phase == Phase::kSent) state.bytes_in_flight -= flight.bytes;
  flight.phase = Phase::kResolved;
  flight.exchange.reset();
  if (--replay.unresolved == 0) {
    if (replay.step == step_) {
      replay = Replay();
      state.next_send = 0;
      ReleaseKept();
    } else {
      ++replay.step;
      PrepareReplay(shard, effects);
      if (!status_.ok()) return;
    }
  }
  SendMore(shard, effects);
}

// A worker that has applied a result must never get a different one.
absl::Status Pipeline::CheckRepeat(uint32_t shard, const protocol::ExchangeReply& answer) {
  const ReplayBuffer::Entry* const kept = kept_.Find(shard, answer.step, answer.bundle);
  if (kept == nullptr || !kept->result_checksum.has_value()) return absl::OkStatus();
  const uint32_t before = *kept->result_checksum;
  const uint32_t frames = protocol::BundleChecksum(answer.results);
  if (answer.record.result_checksum == before && frames == before) {
    const bool same_plan =
        kept->announced == answer.plan ||
        (kept->announced != nullptr && answer.plan != nullptr && *kept->announced == *answer.plan);
    if (same_plan) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "shard ", shard, " announces a different compression plan with step ", answer.step,
        " than before its restart; restart the job from an earlier checkpoint, with "
        "the same build everywhere"));
  }
  return absl::DataLossError(absl::StrFormat(
      "shard %d closed step %d, bundle %d differently from before (checksum %08x, of its frames "
      "%08x; it was %08x): the state that it restored, or that was resent to it, differs from "
      "before; restart the job from an earlier checkpoint, with the same build everywhere",
      shard, answer.step, answer.bundle, answer.record.result_checksum, frames, before));
}

void Pipeline::Release(uint64_t durable_step) {
  durable_step_ = std::max(durable_step_, durable_step);
  ReleaseKept();
}

// Releases nothing during a replay, because the shard may have restarted from the previous
// checkpoint.
void Pipeline::ReleaseKept() {
  for (const ShardState& state : shards_) {
    if (state.replay.asking || state.replay.step != 0) return;
  }
  kept_.Release(durable_step_);
}

uint64_t Pipeline::replay_from() const { return kept_.from(); }

}  // namespace sluice::worker
