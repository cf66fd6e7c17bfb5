// SPDX-License-Identifier: Apache-2.0
// LinkEstimate: estimates the capacity of one link in one direction from the busy periods of each
// step.
//
// Latency and rate are fitted separately. The rate hardly changes within a step, so the large and
// small transfers of one step yield a latency. The latency estimate is the median over many steps.
// The time beyond latency yields the rate of each step. An estimate of bytes / time would fall when
// fewer bytes are sent, and a controller that follows such an estimate would keep reducing the
// bytes.
//
// The class has no clock; the unit of time is a step. Equal histories give equal estimates.
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
  // Of the last kSustainedSteps steps, this many may have been slower than the sustained rate.
  static constexpr size_t kSlowerSteps = 2;

  // Adds the transfers of one step. Ignores transfers that have no bytes or whose time is not
  // finite and positive. A sender-limited transfer may raise the estimate, because the link reached
  // at least that rate, but never lowers it.
  void AddStep(absl::Span<const Transfer> transfers);

  bool known() const { return !rates_.empty(); }
  // Seconds; 0 before the first step that has transfers of different sizes.
  double latency_s() const { return latency_s_; }
  // Bytes per second in the last step; 0 until known. Follows changes quickly, but is noisy.
  double rate_now() const;
  // The median rate of the last three steps, so that one unusual step has no effect.
  double rate_recent() const;
  // The rate that nearly all of the last steps reached. This rate rises slowly and falls fast.
  double rate_sustained() const;
  // The lower of rate_recent and rate_sustained.
  double rate() const;

 private:
  struct Step {
    double bytes = 0;
    double seconds = 0;
    size_t transfers = 0;
  };

  void FitLatency(absl::Span<const Transfer> transfers);
  double PooledRate() const;
  // Returns the standard error of the sum of this many latencies.
  double Error(double transfers) const;

  double latency_s_ = 0;
  // Relative standard deviation of a transfer's time.
  double jitter_ = 0;
  std::deque<double> intercepts_;
  std::deque<double> jitters_;
  std::deque<Step> steps_;
  std::deque<double> rates_;  // The newest rate is last.
};

}  // namespace sluice::server
