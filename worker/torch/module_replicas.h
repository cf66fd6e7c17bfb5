// SPDX-License-Identifier: Apache-2.0
// ModuleReplicas: copies of a model on other GPUs of this process. They run some of a step's
// backward passes in parallel with the model. Their gradients are added to the model's before it
// submits them, so that all GPUs of a worker make one contribution.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/torch/trainable_parameters.h"

namespace sluice::worker {

// Used from one thread at a time. Exceptions of LibTorch propagate to the caller.
class ModuleReplicas {
 public:
  // `copies` must be built like `module`, each on its own device. Fails with INVALID_ARGUMENT, and
  // names the tensor, if a parameter or buffer of a copy is missing or has another shape or type.
  static absl::StatusOr<std::unique_ptr<ModuleReplicas>> Create(
      const torch::nn::Module& module, std::vector<std::shared_ptr<torch::nn::Module>> copies);

  size_t size() const { return copies_.size(); }

  // Copies the module's parameters and buffers to the copies. Call before a step's passes.
  void Load();
  // Adds the copies' gradients since Load to `gradient`, in the order of the copies, and clears the
  // copies' gradients. `parameter` is the parameter's index in FindTrainableParameters.
  void AddGradients(size_t parameter, const at::Tensor& gradient);
  // Sets the module's floating-point buffers to the mean over itself and the first `ran` copies.
  // Call after their passes. Other buffers keep the values of the module's own passes.
  void AverageBuffers(size_t ran);

 private:
  // A tensor of the module and its counterpart in each copy.
  struct Alike {
    at::Tensor own;
    std::vector<at::Tensor> copies;
  };

  ModuleReplicas() = default;
  absl::StatusOr<Alike> FindAlike(const std::string& name, const at::Tensor& own, bool is_buffer);

  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::vector<Alike> trained_;  // In the order of FindTrainableParameters.
  std::vector<Alike> frozen_;
  std::vector<Alike> buffers_;
};

}  // namespace sluice::worker
