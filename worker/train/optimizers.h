// Optimizers: LibTorch's, as a job file names and sets them, and clipping before their step.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/optimizer_spec.h"

namespace sluice::worker {

// Throws what LibTorch throws on a value that it does not like.
absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(
    const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters);

// Momentum of `optimizer`, which MakeOptimizer made of `spec`, from its next step on; its buffers
// follow, so that no step is longer than its neighbours (job/momentum.h). What the momentum was is
// among the options that it saves, so one that is restored goes on as if it had never stopped.
void SetMomentum(const job::OptimizerSpec& spec, double momentum,
                 torch::optim::Optimizer* optimizer);

void SetLearningRate(torch::optim::Optimizer* optimizer, double rate);

// On what .grad holds: each value to ±clip_value first, then all together to the norm clip_norm; 0
// leaves either out.
void ClipGradients(const job::OptimizerSpec& spec, const std::vector<at::Tensor>& parameters);

}  // namespace sluice::worker
