// SPDX-License-Identifier: Apache-2.0
// Kernels of the codecs `sign`, `signsgd` and `onebit`. One pass over memory computes signs, zeros,
// block means and the residual. Other kernels add signs to sums.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kSignBlock = 1024;

// The decoded value of an element that is not zero, depending on its sign.
enum class SignScale {
  // ± the mean magnitude of the block's elements that are not zero.
  kMean,
  // The mean of the elements above zero, or of the elements below zero.
  kTwoMeans,
  kOne,  // ±1.
};

// What becomes of the zeros in a block that also has other values.
//
// kPositive and kAlternate save the plane of zeros if at most half of a block is zero. The residual
// sends the values of the zeros back later.
enum class SignZeros {
  kStay,
  // They count as values above zero.
  kPositive,
  // Those at even positions count as values above zero, and the others as values below. So they
  // cancel in sums over the block.
  kAlternate,
};

// The signs of a block. Bit i belongs to element i; the lowest bit of the first word is bit 0. An
// element has a bit set in at most one of the two planes.
struct SignBlock {
  uint64_t negative[kSignBlock / 64];
  // Marks elements that decode to 0.
  uint64_t zero[kSignBlock / 64];
  // bf16 value of the elements above zero. 0 if there are none.
  uint16_t above = 0;
  // bf16 magnitude of the elements below zero. 0 if there are none.
  uint16_t below = 0;
};

// Encodes `count` whole blocks: acc = gradient + residual, then residual = acc - decoded. If a mean
// rounds to 0, its elements are encoded as zeros. `elements` is less than kSignBlock if each block
// ends with zeros as padding, whose residuals have no meaning.
void EncodeSigns(const float* gradient, float* residual, SignScale scale, SignZeros zeros,
                 SignBlock* blocks, size_t count, size_t elements = kSignBlock);

// Adds one whole block, whose elements are `above`, -`below` or 0. `zero` is null if the block has
// no zeros.
void AddSigns(const uint8_t* negative, const uint8_t* zero, float above, float below, float* sum);

}  // namespace sluice::compress
