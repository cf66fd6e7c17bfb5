// Measures two pieces of work against each other by taking turns: on a machine that others use as
// well, each pair sees the same neighbours, and the median of the pairs' quotients stands still
// where times do not.
#pragma once

#include <cstddef>
#include <functional>

namespace sluice::bench {

// The same number of slices of two equal amounts of memory.
struct Pair {
  std::function<void(size_t slice)> measured;
  std::function<void(size_t slice)> against;
  size_t slices = 0;
  // Called before each pass over all slices; not timed. May be empty.
  std::function<void()> prepare;
};

struct Spread {
  double median = 0;
  double low = 0;  // A quarter is below it.
  double high = 0;
};

struct Timing {
  Spread times;            // Time of `measured` over that of `against`.
  double measured_ns = 0;  // Medians, of a slice.
  double against_ns = 0;
  size_t pairs = 0;
};

// One pass that does not count, then pairs until `seconds` are over, at least a whole pass.
Timing Alternate(const Pair& pair, double seconds);

}  // namespace sluice::bench
