// SimpleCnn: two convolutions and two linear layers, for MNIST and similar data sets.
#pragma once

#include <memory>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

inline constexpr uint32_t kSimpleCnnMinSide = 4;

// 5×5 convolutions to 16 and 32 channels, each halved by max pooling, then layers of 128 and the
// scores: 215,370 parameters for gray images of 28 × 28 and ten classes. Images need at least
// kSimpleCnnMinSide pixels on each side.
std::shared_ptr<Model> MakeSimpleCnn(const SampleShape& shape);

}  // namespace sluice::worker
