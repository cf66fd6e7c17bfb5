// SPDX-License-Identifier: Apache-2.0
// DurationHistogram: counts durations in buckets from a millisecond to five minutes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace sluice {

struct DurationHistogram {
  // Upper bounds of the buckets in seconds. One more bucket at the end has no upper bound.
  static constexpr std::array<double, 12> kBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                     1,     3,     10,   30,   100, 300};

  std::array<uint64_t, kBounds.size() + 1> counts{};
  double seconds = 0;  // Sum of all durations.

  void Add(absl::Duration duration) {
    const double took = absl::ToDoubleSeconds(duration);
    const auto* const bucket = std::lower_bound(kBounds.begin(), kBounds.end(), took);
    ++counts[static_cast<size_t>(bucket - kBounds.begin())];
    seconds += took;
  }
};

}  // namespace sluice
