// SPDX-License-Identifier: Apache-2.0
// SimpleCnn: two convolutions and two linear layers, for MNIST and similar data sets.
#pragma once

#include <memory>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

inline constexpr uint32_t kSimpleCnnMinSide = 4;

// Two 5×5 convolutions with 16 and 32 channels, each followed by max pooling that halves the image,
// then a linear layer of width 128 and the output layer: 215,370 parameters for 28 × 28 gray images
// and ten classes. Images need at least kSimpleCnnMinSide pixels on each side.
std::shared_ptr<Model> MakeSimpleCnn(const SampleShape& shape);

}  // namespace sluice::worker
