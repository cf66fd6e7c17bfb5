// SPDX-License-Identifier: Apache-2.0
// Evaluation: tests a model on a data set.
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

// Returns the number of samples per batch. Large samples get smaller batches, so that the model's
// activations stay within a few hundred megabytes.
uint32_t EvaluationBatch(const SampleShape& shape);

// Tests all samples, or all of their tokens, with the model computing in `type`. Leaves the model
// in training mode. Fails with CANCELLED if `stop` (may be null) becomes true.
absl::StatusOr<Evaluation> Evaluate(Model* model, const Dataset& data,
                                    const std::atomic<bool>* stop,
                                    at::ScalarType type = at::kFloat);

}  // namespace sluice::worker
