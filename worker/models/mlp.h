// Mlp: fully connected layers with ReLU between them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

// Hidden layers of these widths, fc1, fc2 and so on, then one with the scores. Takes images of any
// size, laid flat.
std::shared_ptr<Model> MakeMlp(const std::vector<uint32_t>& hidden, const SampleShape& shape);

}  // namespace sluice::worker
