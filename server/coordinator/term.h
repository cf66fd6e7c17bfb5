// SPDX-License-Identifier: Apache-2.0
// Term: the part of a run between two rollbacks, as the coordinator of the job sees it.
#pragma once

#include <cstdint>

namespace sluice::server {

struct Term {
  uint32_t number = 0;
  uint64_t restore_step = 0;     // The term continues from this step.
  bool announced = false;        // Generation 1 of this term was sent to the shards.
  uint32_t generation = 0;       // 0 until announced.
  bool parameters_agree = true;  // All ranks begin with equal parameters.
};

}  // namespace sluice::server
