// SPDX-License-Identifier: Apache-2.0
// ShardMemory: the memory of one shard, as docs/sizing.md explains it.
#pragma once

#include "planning/estimate/scenario.h"
#include "planning/estimate/traffic.h"

namespace sluice::planning {

// All figures are bytes of one shard.
struct ShardMemory {
  double program = 0;
  double sums = 0;        // Sum of the open step, and residual of a lossy downlink.
  double parameters = 0;  // Parameters and state of the optimizer, if shards keep them.
  double codec = 0;       // State of codecs, beyond the residual.
  double waiting = 0;     // Contributions of a step, at most.
  double results = 0;     // Results that are kept for repairs and stragglers, at most.
  double snapshot = 0;    // While a checkpoint is written.

  double training() const { return program + sums + parameters + codec + waiting + results; }
  double during_checkpoint() const { return training() + snapshot; }
};

ShardMemory MemoryOf(const Scenario& scenario, const Traffic& traffic);

}  // namespace sluice::planning
