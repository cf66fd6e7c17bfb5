// The accumulator acc = gradient + residual that codecs encode: checked before anything is written.
#pragma once

#include <algorithm>

#include "absl/status/statusor.h"
#include "compress/codec.h"

namespace sluice::compress {

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

// As ForEachTile, but what `fn` gets is always a whole block: the last one is filled with zeros.
// `count` says how many elements are real.
template <size_t kBlock, typename Fn>
void ForEachPaddedBlock(const EncodeInput& input, Fn fn) {
  ForEachTile<kBlock>(input, [&](size_t at, const float* gradient, float* residual, size_t count) {
    if (count == kBlock) return fn(at, gradient, residual, count);
    float block[2][kBlock] = {};
    std::copy(gradient, gradient + count, block[0]);
    std::copy(residual, residual + count, block[1]);
    fn(at, block[0], block[1], count);
    std::copy(block[1], block[1] + count, residual);
  });
}

}  // namespace sluice::compress
