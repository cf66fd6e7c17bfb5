// Evaluation: how well a model does on a data set.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

struct Evaluation {
  double loss = 0;      // Mean cross entropy.
  double accuracy = 0;  // 0 to 1.
};

// Samples that are tested at a time: fewer where they are large, so that what the model makes of
// them stays within a few hundred megabytes.
uint32_t EvaluationBatch(const SampleShape& shape);

// Over all samples, or all tokens of them, with the model computing in `type`. Leaves it in
// training mode. CANCELLED when `stop` (may be null) becomes true meanwhile.
absl::StatusOr<Evaluation> Evaluate(Model* model, const Dataset& data,
                                    const std::atomic<bool>* stop,
                                    at::ScalarType type = at::kFloat);

}  // namespace sluice::worker
