// SPDX-License-Identifier: Apache-2.0
// Writes an effect of the coordinator as text, with all fields, for the trace of a simulated job.
#pragma once

#include <string>

#include "server/coordinator/coordinator.h"

namespace sluice {

// Two effects have the same text only if all their fields are equal. A tensor table appears as its
// hash, and a plan as its number and its first step.
std::string EffectText(const server::CoordinatorEffect& effect);

}  // namespace sluice
