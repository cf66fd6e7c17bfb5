// ShardGate: who may speak to a shard, over which streams they hear of it, and what those are told
// who may not. A part of every shard; not thread-safe.
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

// "rank 2, step 12, bundle 0": where a request belongs.
std::string PlaceOf(const protocol::Exchange& exchange);
// INVALID_ARGUMENT, with the place.
absl::Status InvalidRequest(const protocol::Exchange& exchange, absl::string_view what);

// That parameters are not finite `after` a step or an update, as an encoder found.
Alarm Diverged(const ShardOptions& options, absl::string_view after, const absl::Status& found);

class ShardGate {
 public:
  using Effects = std::vector<ShardEffect>;

  // Both must outlive it; what it refuses is counted in `stats`.
  ShardGate(const ShardOptions* options, ShardStats* stats);

  // As Shard::FenceReason.
  std::string FenceReason(const protocol::Sender& sender) const;
  // False: it has answered FENCED, or BUSY to a sender of a term that this shard has not begun.
  // Else it notes the stream: results go to the latest of a rank.
  bool Pass(StreamId stream, const protocol::Exchange& exchange, Effects* out);
  // INVALID_ARGUMENT: generation or rate cannot be.
  absl::Status CheckStamps(const protocol::Exchange& exchange) const;
  void Answer(StreamId stream, const protocol::Exchange& exchange, protocol::Outcome outcome,
              std::string message, Effects* out) const;
  // NEED, from step `from` on.
  void AskFor(StreamId stream, const protocol::Exchange& exchange, uint64_t from, Effects* out);
  // INVALID; after invalid_limit of them running, FENCED and an alarm.
  void Refuse(StreamId stream, const protocol::Exchange& exchange, const absl::Status& why,
              Effects* out);
  // FENCED, and from now on: this holder of its rank cannot go on, and the others can.
  void ShutOut(StreamId stream, const protocol::Exchange& exchange, std::string why, Effects* out);
  // What the rank sent was in order.
  void Accept(uint32_t rank) { ranks_[rank].invalid_running = 0; }

  // Where the rank's results go; 0: nowhere now.
  StreamId stream(uint32_t rank) const { return ranks_[rank].stream; }
  void StreamClosed(StreamId stream);
  // Somebody holds the rank.
  bool present(uint32_t rank) const { return incarnations_[rank] != 0; }
  uint32_t generation() const { return generation_; }
  // As Shard::SetMembership. Returns the ranks whose holder is another now.
  absl::StatusOr<std::vector<uint32_t>> SetMembership(uint32_t generation,
                                                      std::vector<uint64_t> incarnations);
  bool ended() const { return !ended_.empty(); }
  // As Shard::End and Suspend; `step` is where the shard is.
  Effects End(absl::string_view reason, uint64_t step);
  Effects Suspend(uint32_t term, absl::string_view reason, uint64_t step);

 private:
  bool IsBehind(const protocol::Sender& sender) const;

  struct RankState {
    StreamId stream = 0;
    uint32_t invalid_running = 0;
    std::string fenced;  // Why; empty: it is not.
  };

  const ShardOptions& options_;
  ShardStats* const stats_;
  uint32_t generation_;
  uint32_t job_term_;  // Above options_.term once the shard is suspended.
  std::vector<uint64_t> incarnations_;
  std::vector<RankState> ranks_;
  std::string ended_;  // Why; empty while it runs.
};

}  // namespace sluice::server
