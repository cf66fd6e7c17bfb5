// SPDX-License-Identifier: Apache-2.0
// Precision: the type that a model computes in. Its parameters are trained as fp32 masters
// (worker/torch/data_parallel.h), and the loss is computed from fp32 scores.
#pragma once

#include <torch/types.h>

#include <string>

#include "job/enums.h"
#include "worker/models/model.h"
#include "worker/torch/named_tensors.h"

namespace sluice::worker {

// Returns the type for the job's `precision`: fp32, bf16 or fp16.
at::ScalarType ComputingType(job::Precision precision);

// Converts the floating-point parameters of `model` to `type`, except those of BatchNorm, which
// computes in fp32 for any input type. Returns the previous values by name, or nothing for float32.
NamedTensors ConvertParameters(Model* model, at::ScalarType type);

// Returns the model's scores in fp32 for `inputs` from a data set; the model computes in `type`.
// Throws LibTorch's exceptions.
at::Tensor Scores(Model* model, const at::Tensor& inputs, at::ScalarType type);

}  // namespace sluice::worker
