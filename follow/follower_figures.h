// SPDX-License-Identifier: Apache-2.0
// FollowerFigures: counts of a server or relay that serves followers.
#pragma once

#include <cstdint>

namespace sluice::follow {

struct FollowerFigures {
  uint64_t followers = 0;    // Connected now.
  uint64_t newest_step = 0;  // Step of the newest version.
  uint64_t versions = 0;     // Versions that followers could read, since the start.
  // Versions that were left out because encoding them takes longer than the time between two.
  uint64_t skipped = 0;
  uint64_t anchors = 0;     // Anchors that were made.
  uint64_t sent_bytes = 0;  // Bytes of updates that followers received.
  uint64_t lag_steps = 0;   // The largest lag of a follower.
};

}  // namespace sluice::follow
