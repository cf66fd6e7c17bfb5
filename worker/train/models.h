// Models: the networks that a job file can name.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "job/job_spec.h"

namespace sluice {

struct ImageShape {
  uint32_t height = 0;
  uint32_t width = 0;
};

// Takes float images [n, 1, height, width] and gives [n, kImageClasses] scores. Initial parameters
// come from LibTorch's global generator. Throws what LibTorch throws.
//   mlp         fully connected, ReLU between; the layers of spec.hidden (default: one of 128)
//   simple_cnn  5×5 convolutions to 16 and 32 channels, each halved by max pooling, then 128 and
//   the scores;
//               215,370 parameters for 28 × 28
absl::StatusOr<torch::nn::Sequential> MakeModel(const ModelSpec& spec, ImageShape shape);

}  // namespace sluice
