// MakeModel: from a job's model section to the network it names.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "job/training_spec.h"
#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

// The model of `spec` for samples of `shape`. Initial parameters come from LibTorch's global
// generator. INVALID_ARGUMENT says which samples the model takes, or which models there are. Throws
// what LibTorch throws.
absl::StatusOr<std::shared_ptr<Model>> MakeModel(const job::ModelSpec& spec,
                                                 const SampleShape& shape);

}  // namespace sluice::worker
