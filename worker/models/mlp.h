// SPDX-License-Identifier: Apache-2.0
// Mlp: fully connected layers with ReLU between them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/models/model.h"
#include "worker/models/sample_shape.h"

namespace sluice::worker {

// Returns a model of hidden layers with these widths (fc1, fc2 and so on) and an output layer for
// the scores. The model takes images of any size and flattens them.
std::shared_ptr<Model> MakeMlp(const std::vector<uint32_t>& hidden, const SampleShape& shape);

}  // namespace sluice::worker
