// MagnitudeHistogram: counts |x| in logarithmic bins (8 per octave), to read a top-k threshold off.
// Merging is order-free, so a threshold does not depend on which chunk was encoded first.
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace sluice {

class MagnitudeHistogram {
 public:
  // The upper 11 bits below the sign: 8 of exponent, 3 of mantissa.
  static constexpr int kBins = 2048;

  void Clear();
  // Counts a deterministic sample of `values` (by position) with matching weights; all of a short span.
  void Add(absl::Span<const float> values);
  void Merge(const MagnitudeHistogram& other);

  uint64_t total() const { return total_; }
  // The threshold that about `density` of all counted values reach, log-linear inside the boundary bin, rounded to 16
  // significant bits. 0 if nothing was counted or if all values reach it.
  float ThresholdFor(double density) const;

 private:
  std::array<uint64_t, kBins> counts_{};
  uint64_t total_ = 0;
};

}  // namespace sluice
