// SPDX-License-Identifier: Apache-2.0
// The accumulator acc = gradient + residual, which codecs encode. Its elements are checked before
// anything is written.
#pragma once

#include <algorithm>

#include "absl/status/statusor.h"
#include "compress/codec.h"

namespace sluice::compress {

// Returns the largest |acc|. Fails with INVALID_ARGUMENT if the residual has a different size or if
// an element of acc is not finite; the message gives the element's index.
absl::StatusOr<float> LargestMagnitude(absl::Span<const float> gradient,
                                       absl::Span<const float> residual);

// Fails in the same cases as LargestMagnitude, but does not return the maximum.
inline absl::Status CheckAccumulator(absl::Span<const float> gradient,
                                     absl::Span<const float> residual) {
  return LargestMagnitude(gradient, residual).status();
}

// Splits `input` into tiles of at most kTile elements and calls fn(offset, gradient, residual,
// count) for each. If there is no residual, `fn` gets zeros that it may overwrite, so that kernels
// handle only one case.
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

// Works like ForEachTile, but `fn` always gets a whole block: the last block is padded with zeros.
// `count` is the number of actual elements.
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
