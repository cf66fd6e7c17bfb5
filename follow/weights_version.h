// SPDX-License-Identifier: Apache-2.0
// WeightsVersion: identifies one state of a job's parameters, and orders the states of one run. A
// rollback repeats steps in a higher term, so a version of a later term is newer whatever its step.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "follow/sha256.h"

namespace sluice::follow {

struct WeightsVersion {
  uint32_t term = 0;
  uint64_t step = 0;  // The state after this step of the shards.

  friend auto operator<=>(const WeightsVersion&, const WeightsVersion&) = default;
};

inline std::string ToString(const WeightsVersion& version) {
  return version.term <= 1 ? absl::StrCat(version.step)
                           : absl::StrCat(version.step, " of term ", version.term);
}

// A version and the WeightsDigest of its weights.
struct WeightsState {
  WeightsVersion version;
  Digest digest{};

  friend bool operator==(const WeightsState&, const WeightsState&) = default;
};

// One patch or anchor, which leads to `result`.
struct WeightsUpdate {
  bool anchor = false;
  WeightsState base;  // Unused in an anchor.
  WeightsState result;
  std::vector<std::byte> bytes;  // In the format of patch.h.
};
using SharedUpdate = std::shared_ptr<const WeightsUpdate>;

}  // namespace sluice::follow
