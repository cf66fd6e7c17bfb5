// QualityMeter: what the coding of one worker's gradients loses, measured on a few chunks of each
// step: every chunk once in `every` steps, so that no step pays for all of them. Deterministic; not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace sluice::worker {

// Sums over elements, each chunk's as it was measured last.
struct CodingQuality {
  double gradient = 0;  // Squares of the gradient.
  double wanted = 0;    // Of what was to be sent: the gradient, and what was owed before.
  double lost = 0;      // Of what of that frames do not carry; with error feedback: what is owed.
  double owed = 0;      // Of what is owed after. Without feedback nothing is, whatever gets lost.
  double sent = 0;      // Of what the frames say.
  double product = 0;   // Gradient times sent, element by element.
  uint64_t chunks = 0;  // That were measured.

  double ResidualNormRatio() const;  // |owed| / |gradient|; 0: gradients are.
  double CapturedEnergy() const;     // Share of `wanted` that frames carry; 1: all of it.
  double Cosine() const;             // Between gradient and sent; 0: one of them is.

  CodingQuality& operator+=(const CodingQuality& other);
};

class QualityMeter {
 public:
  // `every`: steps; 0: nothing is ever due.
  QualityMeter(size_t chunks, uint64_t every);

  bool IsDue(uint32_t chunk, uint64_t step) const {
    return every_ > 0 && chunk % every_ == step % every_;
  }
  // A chunk's gradient, the frame that was made for it and what is owed since (empty: nothing is
  // kept). Frames that only say something with what came before them are left out.
  void Measure(uint32_t chunk, absl::Span<const float> gradient, absl::Span<const std::byte> frame,
               absl::Span<const float> owed);

  // Over all chunks that were measured so far.
  CodingQuality quality() const;

 private:
  const uint64_t every_;
  std::vector<CodingQuality> chunks_;
  std::vector<float> sent_;  // Of the chunk that is measured.
};

}  // namespace sluice::worker
