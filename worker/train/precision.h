// Precision: the type that a model computes in. Its parameters are trained as fp32 masters
// (worker/torch/data_parallel.h), and scores are fp32 for the loss.
#pragma once

#include <torch/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "worker/models/model.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// Of `precision` as a job names it: fp32, bf16 or fp16.
absl::StatusOr<at::ScalarType> ComputingType(const std::string& precision);

// Makes the floating-point parameters of `model` of `type`, but those of BatchNorm, which computes
// in fp32 whatever it is given. Returns what they were, by name; nothing for float32.
NamedTensors ConvertParameters(Model* model, at::ScalarType type);

// The model's scores, in fp32, of `inputs` as data sets make them; it computes in `type`. Throws
// what LibTorch throws.
at::Tensor Scores(Model* model, const at::Tensor& inputs, at::ScalarType type);

}  // namespace sluice::worker
