// SPDX-License-Identifier: Apache-2.0
// RequestFence: decides which senders a shard serves, tracks the stream of each rank, and answers
// the senders that it refuses. Every shard uses one. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/exchange.h"
#include "server/shard/shard.h"

namespace sluice::server {

// Returns the rank, step and bundle of a request as text, such as "rank 2, step 12, bundle 0".
std::string PlaceOf(const protocol::ExchangeRequest& exchange);
// Returns INVALID_ARGUMENT with the rank, step and bundle of the request.
absl::Status InvalidRequest(const protocol::ExchangeRequest& exchange, absl::string_view what);

// Returns the alarm for non-finite parameters. `after` names the step or the update.
Alarm Diverged(const ShardOptions& options, absl::string_view after, const absl::Status& found);

class RequestFence {
 public:
  using Effects = std::vector<ShardEffect>;

  // Both arguments must outlive the fence. The fence counts its refusals in `stats`.
  RequestFence(const ShardOptions* options, ShardStats* stats);

  // Implements Shard::FenceReason.
  std::string FenceReason(const protocol::Sender& sender) const;
  // Returns true for a sender that the shard serves, and records the stream: results go to a rank's
  // newest stream, and an older one ends. Otherwise answers the sender and returns
  // false. The answer is BUSY if this shard has not received the sender's term or generation yet,
  // and FENCED in other cases.
  bool Pass(StreamId stream, const protocol::ExchangeRequest& exchange, Effects* out);
  // Fails with INVALID_ARGUMENT if the generation, the rate or the weight is out of range.
  absl::Status CheckStamps(const protocol::ExchangeRequest& exchange) const;
  void Answer(StreamId stream, const protocol::ExchangeRequest& exchange, protocol::Outcome outcome,
              std::string message, Effects* out) const;
  // Answers NEED. `from` is the first step that the sender must send.
  void AskFor(StreamId stream, const protocol::ExchangeRequest& exchange, uint64_t from,
              Effects* out);
  // Answers INVALID. After invalid_limit invalid requests in a row, answers FENCED instead and adds
  // an alarm, or RankRefused in an elastic job.
  void Refuse(StreamId stream, const protocol::ExchangeRequest& exchange, const absl::Status& why,
              Effects* out);
  // Answers FENCED and fences the rank's current holder permanently. The other ranks continue.
  void ShutOut(StreamId stream, const protocol::ExchangeRequest& exchange, std::string why,
               Effects* out);
  // Resets the rank's count of invalid requests. Call this after a valid request.
  void Accept(uint32_t rank) { ranks_[rank].invalid_running = 0; }

  // The stream that receives the rank's results; 0 if the rank has none now.
  StreamId stream(uint32_t rank) const { return ranks_[rank].stream; }
  void StreamClosed(StreamId stream);
  // True if a worker holds the rank.
  bool present(uint32_t rank) const { return incarnations_[rank] != 0; }
  uint32_t generation() const { return generation_; }
  // Implements Shard::SetMembership. Returns the ranks whose holders changed.
  absl::StatusOr<std::vector<uint32_t>> SetMembership(uint32_t generation,
                                                      std::vector<uint64_t> incarnations);
  bool ended() const { return !ended_.empty(); }
  // Implement Shard::End and Shard::Suspend. `step` is the shard's current step.
  Effects End(absl::string_view reason, uint64_t step);
  Effects Suspend(uint32_t term, absl::string_view reason, uint64_t step);

 private:
  bool IsBehind(const protocol::Sender& sender) const;
  bool IsGenerationBehind(const protocol::Sender& sender) const;

  struct RankState {
    StreamId stream = 0;
    uint32_t invalid_running = 0;
    std::string fenced;  // Why the rank is fenced; empty if it is not.
  };

  const ShardOptions& options_;
  ShardStats* const stats_;
  uint32_t generation_;
  uint32_t job_term_;  // Greater than options_.term once the shard is suspended.
  std::vector<uint64_t> incarnations_;
  std::vector<RankState> ranks_;
  std::string ended_;  // Why the job ended; empty while it runs.
};

}  // namespace sluice::server
