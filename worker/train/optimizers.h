// SPDX-License-Identifier: Apache-2.0
// Optimizers: LibTorch's optimizers and Muon with the settings of a job file, and clipping before
// their step.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/optimizer_spec.h"

namespace sluice::worker {

// `matrices` are the indices of the parameters whose steps muon orthogonalizes. Other optimizers
// ignore it. Throws LibTorch's exceptions for values that it rejects.
absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(
    const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters,
    const std::vector<size_t>& matrices = {});

// Sets the momentum of `optimizer`, which MakeOptimizer made from `spec`, from its next step on.
// Rescales its buffers, so that no step is longer than its neighbors (job/momentum.h). The
// optimizer's saved options include the momentum, so a restored optimizer continues as if it had
// not stopped.
void SetMomentum(const job::OptimizerSpec& spec, double momentum,
                 torch::optim::Optimizer* optimizer);

void SetLearningRate(torch::optim::Optimizer* optimizer, double rate);

// Clips .grad: first each value to ±clip_value, then all gradients together to the norm clip_norm.
// 0 disables either.
void ClipGradients(const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters);

}  // namespace sluice::worker
