// SPDX-License-Identifier: Apache-2.0
#include "bench/paired_timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Nanoseconds(const std::function<void(size_t)>& work, size_t slice) {
  const Clock::time_point begin = Clock::now();
  work(slice);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double Quantile(std::vector<double>* values, double share) {
  const auto at =
      values->begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

}  // namespace

Timing Alternate(const Pair& pair, double seconds) {
  if (pair.prepare) pair.prepare();
  for (size_t slice = 0; slice < pair.slices; ++slice) {
    pair.measured(slice);
    pair.against(slice);
  }
  std::vector<double> measured, against, times;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  for (size_t i = 0; i < pair.slices || Clock::now() < end; ++i) {
    const size_t slice = i % pair.slices;
    if (slice == 0 && pair.prepare) pair.prepare();
    // The two functions take turns running first.
    const bool swap = i / 2 % 2 == 1;
    if (swap) against.push_back(Nanoseconds(pair.against, slice));
    measured.push_back(Nanoseconds(pair.measured, slice));
    if (!swap) against.push_back(Nanoseconds(pair.against, slice));
    times.push_back(measured.back() / against.back());
  }
  return {.times = {.median = Quantile(&times, 0.5),
                    .low = Quantile(&times, 0.25),
                    .high = Quantile(&times, 0.75)},
          .measured_ns = Quantile(&measured, 0.5),
          .against_ns = Quantile(&against, 0.5),
          .pairs = times.size()};
}

}  // namespace sluice::bench
