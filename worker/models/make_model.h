// SPDX-License-Identifier: Apache-2.0
// MakeModel: builds the network of a job's model section.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "job/training_spec.h"
#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

// Returns the model of `spec` for samples of `shape`. Initial parameters come from LibTorch's
// global generator. Fails with INVALID_ARGUMENT if the model is unknown or cannot process such
// samples; the error names alternatives. Throws LibTorch's exceptions.
absl::StatusOr<std::shared_ptr<Model>> MakeModel(const job::ModelSpec& spec,
                                                 const SampleShape& shape);

}  // namespace sluice::worker
