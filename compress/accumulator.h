// The accumulator acc = gradient + residual that codecs encode: checked before anything is written.
#pragma once

#include "absl/status/statusor.h"
#include "compress/codec.h"

namespace sluice {

// The largest |acc|, or INVALID_ARGUMENT: the residual has another size, or acc is not finite at an
// index (named).
absl::StatusOr<float> LargestMagnitude(absl::Span<const float> gradient,
                                       absl::Span<const float> residual);

// INVALID_ARGUMENT, as above, without the maximum.
inline absl::Status CheckAccumulator(absl::Span<const float> gradient,
                                     absl::Span<const float> residual) {
  return LargestMagnitude(gradient, residual).status();
}

// Walks `input` in tiles of at most kTile elements: fn(offset, gradient, residual, count). Without
// a residual, `fn` gets zeros that it may overwrite, so that kernels know one case only.
template <size_t kTile, typename Fn>
void ForEachTile(const EncodeInput& input, Fn fn) {
  float zeros[kTile];
  for (size_t at = 0; at < input.gradient.size(); at += kTile) {
    const size_t count = input.gradient.size() - at < kTile ? input.gradient.size() - at : kTile;
    float* residual = zeros;
    if (input.residual.empty()) {
      for (size_t i = 0; i < count; ++i) zeros[i] = 0;
    } else {
      residual = input.residual.data() + at;
    }
    fn(at, input.gradient.data() + at, residual, count);
  }
}

}  // namespace sluice
