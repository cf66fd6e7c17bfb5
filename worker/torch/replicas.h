// Replicas: copies of a model on other GPUs of this process. They run some of a step's backward
// passes side by side with the model's own; what they find is added to its gradients before these
// leave, so that all GPUs of a worker are one contribution.
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

// Used from one thread at a time. What LibTorch throws leaves it.
class Replicas {
 public:
  // `copies` are built as `module` is, each on a device of its own. INVALID_ARGUMENT, with the
  // name: one lacks a parameter or buffer, or has it with another shape or type.
  static absl::StatusOr<std::unique_ptr<Replicas>> Create(
      const torch::nn::Module& module, std::vector<std::shared_ptr<torch::nn::Module>> copies);

  size_t size() const { return copies_.size(); }

  // Before a step's passes: parameters and buffers become the module's.
  void Load();
  // Adds what the copies' passes since Load found for a trainable parameter, by its index in
  // FindTrainableParameters, in the order of the copies. Their own are zeros then.
  void AddGradients(size_t parameter, const at::Tensor& gradient);
  // After passes of the module and the first `ran` copies: the module's buffers of floats become
  // the mean of theirs. Others stay as its own passes left them.
  void AverageBuffers(size_t ran);

 private:
  // A tensor of the module, and that of each copy.
  struct Alike {
    at::Tensor own;
    std::vector<at::Tensor> copies;
  };

  Replicas() = default;
  absl::StatusOr<Alike> FindAlike(const std::string& name, const at::Tensor& own, bool is_buffer);

  std::vector<std::shared_ptr<torch::nn::Module>> copies_;
  std::vector<Alike> trained_;  // As FindTrainableParameters has them.
  std::vector<Alike> frozen_;
  std::vector<Alike> buffers_;
};

}  // namespace sluice::worker
