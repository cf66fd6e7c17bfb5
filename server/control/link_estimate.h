// LinkEstimate: what one link carries in one direction, read off the busy periods of each step.
//
// Latency and rate are fitted apart: within a step the rate hardly changes, so that large and small
// transfers of one step give a latency; the median of those of many steps is taken. What a step
// took beyond latency gives that step's rate. An estimate of bytes / time instead falls with the
// bytes that are sent, and a controller that follows it down never stops.
// No clock: a step is the unit of time. Two equal histories give equal estimates.
#pragma once

#include <cstddef>
#include <deque>

#include "absl/types/span.h"
#include "server/control/measurements.h"

namespace sluice::server {

class LinkEstimate {
 public:
  static constexpr size_t kLatencySteps = 32;
  static constexpr size_t kSustainedSteps = 10;
  // Of the last kSustainedSteps, how many may have been slower than what counts as sustained.
  static constexpr size_t kSlowerSteps = 2;

  // The transfers of one step. Those with no bytes or a time that is not finite and positive are
  // passed over. Those that the sender held up are left out, but for one thing: a rate that was
  // reached is there, so they may raise the estimate; they never lower it.
  void AddStep(absl::Span<const Transfer> transfers);

  bool known() const { return !rates_.empty(); }
  // Seconds; 0 until a step had transfers of different sizes.
  double latency_s() const { return latency_s_; }
  // Bytes per second; 0 while not known. Of the last step alone: fast, noisy.
  double rate_now() const;
  // The middle one of the last three steps: one odd step is no news.
  double rate_recent() const;
  // What nearly all of the last steps had; slow up, fast down.
  double rate_sustained() const;
  // The lower of the two above.
  double rate() const;

 private:
  struct Step {
    double bytes = 0;
    double seconds = 0;
    size_t transfers = 0;
  };

  void FitLatency(absl::Span<const Transfer> transfers);
  double PooledRate() const;
  // The standard error of the summed latencies of so many transfers.
  double Error(double transfers) const;

  double latency_s_ = 0;
  double jitter_ = 0;  // Relative, of a transfer's time; standard deviation.
  std::deque<double> intercepts_;
  std::deque<double> jitters_;
  std::deque<Step> steps_;
  std::deque<double> rates_;  // The newest last.
};

}  // namespace sluice::server
