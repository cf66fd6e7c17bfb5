// SPDX-License-Identifier: Apache-2.0
// SlowestStream: corrects shard 0's measurements where other shards have slower links.
//
// A worker sends to all shards at the same time, and its step ends with the last result. Shard 0
// measures only its own connections. If the shards are in several sites, a worker beside shard 0
// would therefore appear to have a fast link to all of them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "protocol/shard_control.h"
#include "server/control/measurements.h"

namespace sluice::server {

// What one shard has measured.
struct ShardStreams {
  uint64_t elements = 0;                       // The shard's part of the model.
  std::vector<protocol::LinkFigures> ranks{};  // By rank.
};

// One rank's slowest stream in each direction, compared with its stream to shard 0.
struct SlowestStream {
  // The time of its bytes divided by that of shard 0's bytes; at least 1.
  double up_times = 1;
  double down_times = 1;
  // Its latency minus that of shard 0, in seconds; at least 0.
  double up_later_s = 0;
  double down_later_s = 0;

  friend bool operator==(const SlowestStream&, const SlowestStream&) = default;
};

// Returns the slowest stream of each rank. `shards` are in order, from shard 0 on. TCP connections
// share one link unevenly, so streams count as equal up to a factor of 1.5. Streams whose rate is
// unknown do not count.
std::vector<SlowestStream> SlowestStreams(absl::Span<const ShardStreams> shards);

// Changes shard 0's transfers to those that the slowest streams would have had: fewer bytes in the
// same time, and the longer latency. `slowest` is by rank and may have fewer ranks.
void ApplySlowestStreams(absl::Span<const SlowestStream> slowest, StepMeasurements* measured);

}  // namespace sluice::server
