// SPDX-License-Identifier: Apache-2.0
// ShardSender: sends one worker's contributions to one shard, and resends those that a broken
// stream or a restart of the shard has lost. It decides what is sent and when. The Pipeline, which
// owns one ShardSender for each shard, makes the contributions and uses the results. The class is
// pure and not thread-safe. docs/protocol.md has the rules, under "Credits" and "Repair".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protocol/exchange.h"
#include "worker/core/pipeline_effect.h"
#include "worker/core/pipeline_options.h"
#include "worker/core/replay_buffer.h"

namespace sluice::worker {

class ShardSender {
 public:
  using Effects = PipelineEffects;

  // This is what an answer means for the caller.
  enum class News {
    kNone,
    // The answer is the first result of a bundle in the current step. The caller checks the result
    // and then calls Resolve.
    kResult,
    // The shard lacks no contribution any more, so the caller may release kept ones.
    kReplayEnded,
  };

  // `kept` serves the senders of all shards. The options and `kept` must outlive the sender.
  ShardSender(uint32_t shard, const PipelineOptions& options, ReplayBuffer* kept);

  // Makes `step` the current step. Every bundle of the previous step must have its result. A replay
  // of earlier steps continues, and the shard gets them first.
  void StartStep(uint64_t step);
  // From the next step on, sends at most this share of the last step's bytes without a result, but
  // always four bundles (SendLead). 0 disables the limit.
  void LimitLead(double share) { lead_share_ = share; }
  // Takes a bundle's contribution to the current step, keeps it in `kept`, and sends it as soon as
  // the window and earlier bundles permit. The caller sends each bundle once in a step.
  void Send(std::shared_ptr<const protocol::ExchangeRequest> exchange, Effects* effects);
  // Handles every answer except FENCED. The sender cannot be used after a failure. The failure is a
  // RollbackError if this worker has to replay steps that it no longer keeps, DATA_LOSS if a result
  // differs from one received before, INVALID_ARGUMENT if the shard refuses a contribution, and
  // INTERNAL if the shard breaks the protocol.
  absl::StatusOr<News> Answer(const protocol::ExchangeReply& answer, Effects* effects);
  // Call this with the answer for which Answer returned kResult.
  void Resolve(const protocol::ExchangeReply& answer, Effects* effects);
  // The comments on Pipeline's methods of these names describe the events.
  void StreamReset(Effects* effects);
  void RetryDue(Effects* effects);
  void ShardReplaced(Effects* effects);

  // Returns the checksum of the frames that the worker contributed to the bundle in the current
  // step.
  uint32_t checksum(uint32_t bundle) const { return flights_[bundle].checksum; }
  // Returns what the worker contributed to the bundle in the current step. Null once resolved.
  const std::shared_ptr<const protocol::ExchangeRequest>& contribution(uint32_t bundle) const {
    return flights_[bundle].exchange;
  }
  // Returns the bytes of frames that were sent and that the shard has not admitted yet.
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  // While this is true, the shard may lack any contribution in `kept`.
  bool is_replaying() const { return replay_.asking || replay_.step != 0; }

 private:
  enum class Phase {
    kGathering,  // The caller has not passed the contribution yet.
    kToSend,     // The contribution waits to be sent or resent.
    kSent,
    kAdmitted,
    kResolved,
  };
  // A flight is a bundle on its way to the shard in one step.
  struct Flight {
    Phase phase = Phase::kGathering;
    uint32_t repeats_asked = 0;
    uint64_t bytes = 0;
    std::shared_ptr<const protocol::ExchangeRequest> exchange{};  // It is null once resolved.
    uint32_t checksum = 0;                                        // It covers the frames.
  };
  // A replay resends a step to a replaced shard before the sender sends any later step.
  struct Replay {
    // Nothing is sent until the shard has named the first step that it lacks.
    bool asking = false;
    uint64_t step = 0;  // It is 0 while nothing is resent.
    // There is one for each bundle. kResolved means that it has an answer or need not be resent.
    std::vector<Flight> flights;
    size_t unresolved = 0;
  };
  struct SentBundle {
    uint64_t step = 0;
    uint32_t bundle = 0;
  };

  // Returns the bundle of the step being resent, or of the current step if none is.
  Flight& FlightToSend(uint32_t bundle);
  // Returns the bundle that the answer to (step, bundle) concerns, or null if none waits for it.
  Flight* FindFlight(uint64_t step, uint32_t bundle);
  // Returns whether the shard owes an answer to a contribution, or must still get one.
  bool HasUnanswered() const;
  void SendMore(Effects* effects);
  void SendAgain(uint32_t bundle, Flight* flight);
  void PauseFor(uint32_t retry_after_ms, Effects* effects);
  // Records that the flight needs nothing more from the shard.
  void Land(Flight* flight);
  // Returns whether the limit of the lead permits to send a flight of this size.
  bool MayLead(uint64_t bytes) const;
  // Handles PENDING, NEED, BUSY and INVALID for a contribution that this worker has made.
  absl::Status AnswerFlight(const protocol::ExchangeReply& answer, Flight* flight,
                            Effects* effects);
  // Handles an answer for which no contribution waits.
  absl::Status AnswerUnawaited(const protocol::ExchangeReply& answer, bool is_gathering,
                               Effects* effects);
  absl::Status NotSent(const protocol::ExchangeReply& answer) const;

  // The file shard_sender_replay.cc defines the methods from here on.

  // Continues after a new stream or a pause.
  void Resume(Effects* effects);
  void AskWhatIsLost(Effects* effects);
  void AskForLastSent(Effects* effects) const;
  absl::Status CannotAsk(const protocol::ExchangeReply& answer) const;
  // Handles a NEED that names another step than it answers, or that no contribution awaits.
  absl::StatusOr<News> AnswerNeedOfSteps(const protocol::ExchangeReply& answer, uint64_t from,
                                         bool is_awaited, Effects* effects);
  absl::StatusOr<News> BeginReplay(uint64_t from, Effects* effects);
  absl::StatusOr<News> ReplayStep(uint64_t step, Effects* effects);
  News EndReplay(Effects* effects);
  std::shared_ptr<const protocol::ExchangeRequest> ForReplay(const ReplayBuffer::Entry& kept) const;
  absl::StatusOr<News> ResolveRepeat(uint32_t bundle, Effects* effects);
  absl::Status CheckRepeat(const protocol::ExchangeReply& answer) const;

  const uint32_t shard_;
  const PipelineOptions& options_;
  ReplayBuffer* const kept_;
  uint64_t step_ = 0;  // It is the current step, or 0 before the first one.
  // There is one for each bundle. Before the first step, all are resolved.
  std::vector<Flight> flights_;
  // In the step that is being sent, no bundle before this one waits to be sent.
  uint32_t next_send_ = 0;
  uint64_t bytes_in_flight_ = 0;
  double lead_share_ = 0;
  uint64_t lead_bytes_ = 0;  // Limit in the current step; 0 means none.
  uint64_t step_bytes_ = 0;  // Bytes of frames of the current step, sent or not.
  bool paused_ = false;      // Sending is paused until RetryDue.
  Replay replay_;
  std::optional<SentBundle> last_sent_;  // It is the last in step order; resends do not count.
  uint64_t asked_step_ = 0;              // It is the latest step that AskWhatIsLost named.
};

}  // namespace sluice::worker
