// SPDX-License-Identifier: Apache-2.0
// Model: a network that a job file can name. It maps samples to scores.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

namespace sluice::worker {

class Model : public torch::nn::Module {
 public:
  // Maps n samples to scores: float images [n, channels, height, width] to scores [n, classes];
  // int64 tokens [n, context], or shorter rows, to scores [n, context, classes] of each next token.
  // Throws LibTorch's exceptions.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;

  // Returns the names of the weights of embeddings and of the output layer. Optimizers for matrices
  // treat them as vectors.
  virtual std::vector<std::string> EdgeWeights() const = 0;
};

}  // namespace sluice::worker
