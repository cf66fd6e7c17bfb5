// Ema: an exponential moving average of the trained parameters. It is tested and kept in place of
// them; training goes on with the parameters themselves.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace sluice::worker {

// Holds on to the parameters, which are float32. Updates are the same on all ranks, as the
// parameters are.
class Ema {
 public:
  // `decay`: at least 0, below 1.
  Ema(double decay, const std::vector<at::Tensor>& parameters);

  // Begins anew, from what the parameters are now.
  void Reset();
  // average = d * average + (1 - d) * parameter, with d the least of the decay and
  // (1 + updates) / (10 + updates), so that what it began with does not weigh for long.
  void Update();
  // Exchanges averages and parameters, value by value; the second time all is as it was.
  void Swap();

  uint64_t updates() const { return updates_; }  // So far.
  const std::vector<at::Tensor>& averages() const { return averages_; }
  // In the order of the parameters, of their shapes.
  void Restore(const std::vector<at::Tensor>& averages, uint64_t updates);

 private:
  const double decay_;
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> averages_;
  uint64_t updates_ = 0;
};

}  // namespace sluice::worker
