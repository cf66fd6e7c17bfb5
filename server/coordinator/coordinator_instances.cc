// How the processes of a run are numbered, and which of two of a shard serves it. No clock has a
// say: docs/protocol.md, "Which process is newer".
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {
namespace {

constexpr int kIncarnationShift = 32;

}  // namespace

// What a coordinator numbers is above all that earlier ones of its run have numbered, since its own
// number, which is durable, makes the upper half. Of commands, too: so no acknowledgement of an
// earlier coordinator's is taken for one of ours.
uint64_t Coordinator::FirstNumber() const { return incarnation_ << kIncarnationShift; }

uint64_t Coordinator::NumberShard() { return FirstNumber() + ++numbered_; }

bool Coordinator::IsHolder(const ShardSeat& seat, const ShardArrival& arrival) {
  return seat.arrival.server_incarnation == arrival.server_incarnation &&
         seat.arrival.nonce == arrival.nonce;
}

absl::Status Coordinator::CheckSeatIsFree(const ShardArrival& arrival) const {
  const ShardSeat& seat = seats_[arrival.shard];
  if (!has_checkpoints()) {
    if (seat.stream == 0) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("shard ", arrival.shard, " is served by ",
                                                 seat.arrival.address,
                                                 " already; give this server another --shard"));
  }
  // The process that came last serves the shard, whatever is left of the one before.
  if (!seat.known || arrival.server_incarnation > seat.arrival.server_incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", arrival.shard, " is served by ", seat.arrival.address,
                   ", which was started later; this server is to end"));
}

std::vector<ShardPlace> Coordinator::Places() const {
  std::vector<ShardPlace> places;
  for (const ShardSeat& seat : seats_) {
    places.push_back({.shard = seat.arrival.shard,
                      .address = seat.arrival.address,
                      .server_incarnation = seat.arrival.server_incarnation});
  }
  return places;
}

bool Coordinator::ShardsMoved(const WorkerHeartbeat& heartbeat) const {
  const std::vector<uint64_t>& known = heartbeat.known_shards;
  for (size_t shard = 0; shard < seats_.size(); ++shard) {
    const uint64_t newest_known = shard < known.size() ? known[shard] : 0;
    if (newest_known < seats_[shard].arrival.server_incarnation) return true;
  }
  return false;
}

}  // namespace sluice::server
