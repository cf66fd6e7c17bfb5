// ComputeTime: what steps take beside communication: the computing of the rank that is usually
// fastest, so that a straggler changes nothing, and the shards' work; medians of the last steps.
#pragma once

#include <deque>
#include <vector>

#include "server/control/measurements.h"

namespace sluice::server {

class ComputeTime {
 public:
  static constexpr size_t kSteps = 15;

  // Ranks that did not compute are passed over.
  void AddStep(const StepMeasurements& measured);

  bool known() const { return compute_s() > 0; }
  double compute_s() const;  // 0 while not known.
  double server_s() const;

 private:
  std::vector<std::deque<double>> compute_;  // By rank.
  std::deque<double> server_;
};

}  // namespace sluice::server
