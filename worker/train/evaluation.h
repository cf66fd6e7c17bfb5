// Evaluation: how well a model does on a data set.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace sluice {

struct Evaluation {
  double loss = 0;      // Mean cross entropy.
  double accuracy = 0;  // 0 to 1.
};

// Over all samples, or all tokens of them. Leaves the model in training mode. CANCELLED when `stop`
// (may be null) becomes true meanwhile.
absl::StatusOr<Evaluation> Evaluate(Model* model, const Dataset& data,
                                    const std::atomic<bool>* stop);

}  // namespace sluice
