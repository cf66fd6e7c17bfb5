// SPDX-License-Identifier: Apache-2.0
// ComputeTime: the parts of the step time that are not communication. These are the shards' work
// and the compute time of the rank that is usually fastest. The fastest rank is used so that a
// straggler has no effect. Both values are medians of the last steps.
#pragma once

#include <deque>
#include <vector>

#include "server/control/measurements.h"

namespace sluice::server {

class ComputeTime {
 public:
  static constexpr size_t kSteps = 15;

  // Adds the times of one step. Ignores ranks that did not compute.
  void AddStep(const StepMeasurements& measured);

  bool known() const { return compute_s() > 0; }
  double compute_s() const;  // Seconds; 0 until known.
  double server_s() const;

 private:
  std::vector<std::deque<double>> compute_;  // By rank.
  std::deque<double> server_;
};

}  // namespace sluice::server
