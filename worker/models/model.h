// Model: a network that a job file can name: samples in, scores out.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace sluice::worker {

class Model : public torch::nn::Module {
 public:
  // Of n samples: float images [n, channels, height, width] to scores [n, classes]; int64 tokens
  // [n, context], or fewer in a row, to scores [n, context, classes] of what follows each. Throws
  // what LibTorch throws.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};

}  // namespace sluice::worker
