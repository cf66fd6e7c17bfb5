// SPDX-License-Identifier: Apache-2.0
// QualityMeter: measures the coding loss of one worker's gradients. It measures each chunk in one
// of `every` steps, which spreads the cost. Deterministic; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice::worker {

// Sums over the elements of all chunks, from the last measurement of each chunk.
struct CodingQuality {
  double gradient = 0;  // Squares of the gradient.
  double wanted = 0;    // Squares of the target: the gradient plus the earlier residual.
  // Squares of the part of the target that frames do not carry. With error feedback, this part is
  // the residual.
  double lost = 0;
  // Squares of the residual after coding. 0 without error feedback, even if the coding loses
  // something.
  double owed = 0;
  double sent = 0;      // Squares of the decoded frames.
  double product = 0;   // Gradient times sent, element by element.
  uint64_t chunks = 0;  // Number of measured chunks.

  double ResidualNormRatio() const;  // |owed| / |gradient|; 0 if gradients are 0.
  double CapturedEnergy() const;     // Share of `wanted` that frames carry; 1 means all.
  double Cosine() const;             // Between gradient and sent; 0 if either is 0.

  CodingQuality& operator+=(const CodingQuality& other);
};

class QualityMeter {
 public:
  // `every` is a number of steps. With 0, no chunk is ever due.
  QualityMeter(size_t chunks, uint64_t every);

  bool IsDue(uint32_t chunk, uint64_t step) const {
    return every_ > 0 && chunk % every_ == step % every_;
  }
  // Compares a chunk's gradient with its frame. `owed` is the residual after coding, or empty if
  // the coding keeps none. Ignores frames that can be decoded only together with earlier ones.
  void Measure(uint32_t chunk, absl::Span<const float> gradient, absl::Span<const std::byte> frame,
               absl::Span<const float> owed);

  // Sums over all chunks measured so far.
  CodingQuality quality() const;

 private:
  const uint64_t every_;
  std::vector<CodingQuality> chunks_;
  std::vector<float> sent_;  // Decoded values of the chunk being measured.
};

}  // namespace sluice::worker
