// Measurements: what shards and workers hand in of one step, for the control of compression. Plain
// data: durations in seconds, each taken by one clock, so that clocks need not agree.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "job/control_spec.h"

namespace sluice::server {

// One busy period of a link in one direction: some bytes that travelled without a pause.
struct Transfer {
  uint64_t bytes = 0;
  // From handing over the first byte until the other side is known to have the last: latency and
  // all. Not counted: the wait for the transfers before it.
  double seconds = 0;
  // The sender ran out of bytes in between, so that the link could have carried more.
  bool sender_limited = false;
};

// Of one worker. `up` and `down` want transfers of different sizes (bundles and heartbeats, say):
// latency is told from rate by them.
struct RankMeasurements {
  std::vector<Transfer> up{};
  std::vector<Transfer> down{};
  double compute_s = 0;  // Forward and backward, as the worker's clock has it.
  double encode_s = 0;   // Gradients to frames.
  double apply_s = 0;    // Results to parameters.
  double exposed_s = 0;  // The training thread waited, for encoding and for results.
  // From the previous step's result leaving the shard to this rank's last frame being there, by the
  // shard's clock.
  double arrival_s = 0;
  uint64_t bytes_up = 0;  // Of frames, this step.
};

struct StepMeasurements {
  uint64_t step = 0;
  std::vector<RankMeasurements> ranks{};  // By rank.
  double server_s = 0;                    // Decoding, summing and encoding, on the slowest shard.
  double decode_queue_s = 0;              // From a frame's arrival to its turn, at most.
  uint64_t bytes_down = 0;                // Of results, to each rank.
  // A metric on data that is not trained on, in percent, more is better; where one was just taken.
  std::optional<job::CurvePoint> validation{};
};

// Makes what was measured of a part of the bytes stand for all of them: links carry so many times
// the bytes that were seen, in the same time.
void ScaleTransfers(double up, double down, StepMeasurements* measured);

// How late a rank was after the first, and whose fault it is. Only lateness of the network is a
// reason to send less.
struct Lateness {
  double compute_s = 0;
  double network_s = 0;
};

// By rank. The two add up to how much later than the first rank's its last frame came.
std::vector<Lateness> SplitLateness(const std::vector<RankMeasurements>& ranks);

}  // namespace sluice::server
