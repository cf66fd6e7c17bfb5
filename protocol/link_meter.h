// SPDX-License-Identifier: Apache-2.0
// LinkMeter: measures one direction of a link at the receiver of one stream. The meter finds the
// busy periods, in which bytes travelled without a pause. The caller passes the time, so the meter
// reads no clock. Not thread-safe.
//
// Each message states the time at which it was ready, by the sender's clock. The origins of the two
// clocks differ by an unknown constant, so travel times are known only up to that constant. The
// shortest recent travel time belongs to a small message on an idle link and equals the latency
// plus the constant. Any additional travel time is due to the bytes of the message itself and of
// earlier messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace sluice::protocol {

// One busy period. It begins when the link is free and a message is ready, and ends when all bytes
// have arrived.
struct LinkPeriod {
  uint64_t bytes = 0;
  double seconds = 0;  // Duration without the latency. Greater than 0.

  friend bool operator==(const LinkPeriod&, const LinkPeriod&) = default;
};

// A worker's report to a shard, sent once per step, about the link between them and about the
// worker itself. All durations are by the worker's clock.
struct LinkReport {
  static constexpr size_t kPeriodsMax = 4;

  uint64_t step = 0;  // The step that has just finished.
  // Round trip of a small message on an idle link. 0 means that it is not known yet.
  double round_trip_s = 0;
  // Busy periods of results from the shard since the last report.
  std::vector<LinkPeriod> down{};
  double compute_s = 0;  // Time of the step, excluding the fields below.
  // Time for all encoding, including encoding that overlaps with computing.
  double encode_s = 0;
  // Time for applying the previous step's results to the parameters.
  double apply_s = 0;
  // Time spent waiting for the worker's own encoding, then for results.
  double exposed_s = 0;
  // Accuracy, from 0 to 1, if a test has finished since the last report.
  std::optional<double> tested{};

  friend bool operator==(const LinkReport&, const LinkReport&) = default;
};

class LinkMeter {
 public:
  // Number of recent probes from which the meter takes the shortest travel time. After this many
  // probes, the meter has adapted to a link that became slower and to the drift of the clocks.
  static constexpr size_t kProbes = 16;

  // Records a message. Times are in nanoseconds. `ready` is the sender's time in the message; if it
  // is 0, the message states no time and nothing is measured. `came` is the arrival time by this
  // side's clock. `probe` marks a small message that was sent on an idle link. The meter records no
  // periods before the first probe, because a long travel time could then be due to bytes alone.
  void Came(uint64_t bytes, uint64_t ready, int64_t came, bool probe = false);
  // Ends the open period and returns the periods since the last call. If there were more than
  // kPeriodsMax periods, returns the largest ones, followed by the smallest.
  std::vector<LinkPeriod> Take();

 private:
  struct Open {
    uint64_t bytes = 0;
    int64_t begin = 0;  // By this side's clock, delayed by the latency.
    int64_t end = 0;
  };

  void Close();

  // For each probe: the shortest travel time, in nanoseconds, of the probe and of the messages
  // between it and the next probe.
  std::deque<int64_t> shortest_;
  std::optional<Open> open_;
  int64_t last_came_ = 0;
  std::vector<LinkPeriod> periods_;
};

}  // namespace sluice::protocol
