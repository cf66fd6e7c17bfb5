// SPDX-License-Identifier: Apache-2.0
// Ema: an exponential moving average of the trained parameters. The average is tested and saved in
// place of the parameters. Training continues with the parameters themselves.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace sluice::worker {

// Holds references to the float32 parameters. Because parameters are the same on all ranks, updates
// are too.
class Ema {
 public:
  // `decay` is at least 0 and below 1.
  Ema(double decay, const std::vector<at::Tensor>& parameters);

  // Restarts from the current parameters.
  void Reset();
  // average = d * average + (1 - d) * parameter, where d is the minimum of the decay and (1 +
  // updates) / (10 + updates), so that the initial value loses its weight quickly.
  void Update();
  // Swaps averages and parameters by value. A second call restores both.
  void Swap();

  uint64_t updates() const { return updates_; }  // Updates so far.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  // `averages` have the parameters' order and shapes.
  void Restore(const std::vector<at::Tensor>& averages, uint64_t updates);

 private:
  const double decay_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> averages_;
  uint64_t updates_ = 0;
};

}  // namespace sluice::worker
