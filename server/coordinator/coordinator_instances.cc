// Numbers the processes of a run and decides which process serves a shard. Clocks are not used:
// docs/protocol.md, "Which process is newer".
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {
namespace {

constexpr int kIncarnationShift = 32;

}  // namespace

// The upper half of each number is the coordinator's durable number, so that all numbers are above
// those of earlier coordinators. Commands use the same scheme, so that an acknowledgement that was
// meant for an earlier coordinator does not count for this one.
uint64_t Coordinator::FirstNumber() const { return incarnation_ << kIncarnationShift; }

uint64_t Coordinator::NumberShard() { return FirstNumber() + ++numbered_; }

bool Coordinator::IsHolder(const ShardSeat& seat, const protocol::ShardArrival& arrival) {
  return seat.arrival.server_incarnation == arrival.server_incarnation &&
         seat.arrival.nonce == arrival.nonce;
}

absl::Status Coordinator::CheckSeatIsFree(const protocol::ShardArrival& arrival) const {
  const ShardSeat& seat = seats_[arrival.shard];
  if (!has_checkpoints()) {
    if (seat.stream == 0) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("shard ", arrival.shard, " is served by ",
                                                 seat.arrival.address,
                                                 " already; give this server another --shard"));
  }
  // The process with the highest number serves the shard, even if an older process is still alive.
  if (!seat.known || arrival.server_incarnation > seat.arrival.server_incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", arrival.shard, " is served by ", seat.arrival.address,
                   ", which was started later; this server must stop"));
}

std::vector<protocol::ShardPlace> Coordinator::Places() const {
  std::vector<protocol::ShardPlace> places;
  for (const ShardSeat& seat : seats_) {
    places.push_back({.shard = seat.arrival.shard,
                      .address = seat.arrival.address,
                      .server_incarnation = seat.arrival.server_incarnation});
  }
  return places;
}

bool Coordinator::ShardsMoved(const protocol::WorkerHeartbeat& heartbeat) const {
  const std::vector<uint64_t>& known = heartbeat.known_shards;
  for (size_t shard = 0; shard < seats_.size(); ++shard) {
    const uint64_t newest_known = shard < known.size() ? known[shard] : 0;
    if (newest_known < seats_[shard].arrival.server_incarnation) return true;
  }
  return false;
}

}  // namespace sluice::server
