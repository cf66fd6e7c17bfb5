// SPDX-License-Identifier: Apache-2.0
// Writes means in the element type that a program keeps its gradients in.
#pragma once

#include <span>

#include "sluice/session.h"

namespace sluice::client {

// Writes `mean`, scaled and rounded, to `target`, which has as many elements.
void WriteMean(std::span<const float> mean, const MeanTarget& target);

}  // namespace sluice::client
