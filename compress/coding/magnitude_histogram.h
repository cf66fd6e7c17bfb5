// MagnitudeHistogram: counts |x| in logarithmic bins (8 per octave), to read a top-k threshold off.
// Merging is order-free, so a threshold does not depend on which chunk was encoded first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace sluice::compress {

class MagnitudeHistogram {
 public:
  // The upper 11 bits below the sign: 8 of exponent, 3 of mantissa.
  static constexpr int kBins = 2048;
  // Of a span longer than this about so many values are counted, each for several.
  static constexpr size_t kSample = 16384;

  // One in how many values to count, of `elements` that share a threshold: so that at least 400 of
  // those counted reach it, and at most one in 64.
  static size_t StrideFor(uint64_t elements, double density);
  // What Add takes for 0.
  static size_t StrideOf(size_t values);

  void Clear();
  // Counts one in `stride` of |gradient + residual|, in groups of 256 bytes at positions that are
  // always the same, with weights that make up for the others; at least one group of each span. 0:
  // about kSample values. `residual` is empty or of the same size. Values that are not finite are
  // counted as large ones.
  void Add(absl::Span<const float> gradient, absl::Span<const float> residual = {},
           size_t stride = 0);
  void Merge(const MagnitudeHistogram& other);
  // What was counted elsewhere, on a GPU: kBins counts, with their weights.
  void AddCounts(absl::Span<const uint32_t> counts);

  uint64_t total() const { return total_; }
  // The threshold that about `density` of all counted values reach, log-linear inside the boundary
  // bin, rounded to 16 significant bits. 0 if nothing was counted, or if so few are not zero that
  // all of those should pass.
  float ThresholdFor(double density) const;
  // A threshold that the largest counted value reaches, and others less than 1/8 octave below it. 0
  // if all are 0.
  float ThresholdForLargest() const;

 private:
  std::array<uint64_t, kBins> counts_{};
  uint64_t total_ = 0;
};

}  // namespace sluice::compress
