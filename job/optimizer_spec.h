// OptimizerSpec and LrScheduleSpec: how parameters are updated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::job {

struct OptimizerSpec {
  std::string name = "sgd";  // sgd, adam, adamw, rmsprop
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double alpha = 0.99;
  double weight_decay = 0;
  double clip_norm = 0;        // 0: off.
  double clip_value = 0;       // 0: off.
  std::string on = "workers";  // Or shards.
  // At most so much where gradients come late (job/momentum.h); none: by its table.
  std::optional<double> delayed_momentum{};
};

struct LrScheduleSpec {
  std::string name = "constant";  // constant, step, cosine, one_cycle
  uint64_t warmup_steps = 0;
  uint64_t step_size = 0;
  double gamma = 0.1;
  double final_lr = 0;
  double warmup_fraction = 0.3;
};

}  // namespace sluice::job
