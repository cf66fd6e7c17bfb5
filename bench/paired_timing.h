// SPDX-License-Identifier: Apache-2.0
// Compares two pieces of work by running them alternately. Other load slows both members of a pair
// equally, so the median of the pairs' ratios is stable even if the times are not.
#pragma once

#include <cstddef>
#include <functional>

namespace sluice::bench {

// Both functions process the same number of slices, each over its own memory of equal size.
struct Pair {
  std::function<void(size_t slice)> measured;
  std::function<void(size_t slice)> against;
  size_t slices = 0;
  // Called before each pass over all slices; not timed. May be empty.
  std::function<void()> prepare;
};

struct Spread {
  double median = 0;
  double low = 0;  // The lower quartile.
  double high = 0;
};

struct Timing {
  Spread times;            // Time of `measured` / time of `against`.
  double measured_ns = 0;  // Median time per slice.
  double against_ns = 0;
  size_t pairs = 0;
};

// Runs one warm-up pass, then pairs for `seconds`, but at least one whole pass.
Timing Alternate(const Pair& pair, double seconds);

}  // namespace sluice::bench
