// SPDX-License-Identifier: Apache-2.0
// MagnitudeHistogram: counts |x| in logarithmic bins (8 per octave). A top-k threshold is derived
// from the counts. Merging does not depend on the order, so a threshold does not depend on the
// order in which chunks were encoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace sluice::compress {

class MagnitudeHistogram {
 public:
  // The upper 11 bits below the sign select the bin: 8 of exponent, 3 of mantissa.
  static constexpr int kBins = 2048;
  // In longer spans, Add counts about this many values, each of which represents several.
  static constexpr size_t kSample = 16384;

  // Returns the stride for counting `elements` that share a threshold. If there are enough
  // elements, about 400 or more counted values then reach the threshold. The stride is at most 64.
  static size_t StrideFor(uint64_t elements, double density);
  // Returns the stride that Add uses for a stride of 0.
  static size_t StrideOf(size_t values);

  void Clear();
  // Counts one in `stride` of the magnitudes |gradient + residual|, in groups of 256 bytes. The
  // positions depend only on the size and the stride. Weights compensate for values that are not
  // counted. At least one group of each span is counted. A stride of 0 counts about kSample values.
  // `residual` is empty or has the same size. Values that are not finite count as large ones.
  void Add(absl::Span<const float> gradient, absl::Span<const float> residual = {},
           size_t stride = 0);
  // Adds the counts of another histogram.
  void Add(const MagnitudeHistogram& other);
  // Adds kBins weighted counts from a GPU.
  void AddCounts(absl::Span<const uint32_t> counts);

  uint64_t total() const { return total_; }
  // Returns the threshold that about a share of `density` of all counted values reaches. The
  // function interpolates linearly in the boundary bin and rounds to 16 significant bits. It
  // returns 0 if nothing was counted, or if so few values are not zero that all of them should
  // pass.
  float ThresholdFor(double density) const;
  // Returns the lower limit of the highest bin with counts, so that the largest counted value
  // reaches this threshold. Returns 0 if all values are 0.
  float ThresholdForLargest() const;

 private:
  std::array<uint64_t, kBins> counts_{};
  uint64_t total_ = 0;
};

}  // namespace sluice::compress
