// SPDX-License-Identifier: Apache-2.0
// Measurements: figures that shards and workers report about one step. The compression control uses
// them. Plain data. Each duration is in seconds and measured by a single clock, so clocks need not
// agree.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "job/control_spec.h"

namespace sluice::server {

// One busy period of a link in one direction: bytes that travelled without a pause.
struct Transfer {
  uint64_t bytes = 0;
  // From the moment when the first byte is handed over until the other side is known to have the
  // last byte. Includes latency; excludes the wait for earlier transfers.
  double seconds = 0;
  // True if the sender ran out of bytes in between, so that the link could have carried more.
  bool sender_limited = false;
};

// Measurements of one worker. `up` and `down` need transfers of different sizes (such as bundles
// and heartbeats) to separate latency from rate.
struct RankMeasurements {
  std::vector<Transfer> up{};
  std::vector<Transfer> down{};
  double compute_s = 0;  // Forward and backward, by the worker's clock.
  double encode_s = 0;   // Time to convert gradients to frames.
  double apply_s = 0;    // Time to apply results to parameters.
  double exposed_s = 0;  // Time that the training thread waited for encoding and results.
  // Arrival time of this rank's last frame, by the shard's clock. All ranks of a step share the
  // same origin.
  double arrival_s = 0;
  uint64_t bytes_up = 0;  // Bytes of this step's frames.
};

struct StepMeasurements {
  uint64_t step = 0;
  std::vector<RankMeasurements> ranks{};  // By rank.
  // Time to decode, sum and encode on the slowest shard.
  double server_s = 0;
  uint64_t bytes_down = 0;  // Bytes of the results that each rank receives.
  // A metric in percent on data outside the training set; higher is better. Set only in steps in
  // which it was measured.
  std::optional<job::CurvePoint> validation{};
};

// Extrapolates measurements of some of the bytes to all bytes: multiplies the bytes of each
// transfer by `up` or `down` and keeps the time.
void ScaleTransfers(double up, double down, StepMeasurements* measured);

// A rank's delay behind the first rank, divided by cause. Only network delay is a reason to send
// less.
struct Lateness {
  double compute_s = 0;
  double network_s = 0;
};

// Returns the lateness of each rank. The two parts add up to the delay of the rank's last frame
// behind the last frame of the first rank.
std::vector<Lateness> SplitLateness(const std::vector<RankMeasurements>& ranks);

}  // namespace sluice::server
