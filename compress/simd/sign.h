// Kernels of the codecs `sign`, `signsgd` and `onebit`: signs, zeros, block means and the residual
// in one pass over memory, and adding them up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kSignBlock = 1024;

// What an element that is not zero decodes to, by its sign.
enum class SignScale {
  kMean,      // ± the mean magnitude of the block's elements that are not zero.
  kTwoMeans,  // The mean of those above zero, or of those below.
  kOne,       // ±1.
};

// Bit i is element i, from the lowest bit of the first word on. An element has at most one bit.
struct SignBlock {
  uint64_t negative[kSignBlock / 64];
  uint64_t zero[kSignBlock / 64];  // Decodes to 0.
  uint16_t above = 0;              // bf16: what stands for elements above zero; 0: there are none.
  uint16_t below = 0;              // Likewise below zero; its magnitude.
};

// `count` whole blocks. acc = gradient + residual; residual = acc - what is decoded. Where a mean
// rounds to 0, so do its elements.
void EncodeSigns(const float* gradient, float* residual, SignScale scale, SignBlock* blocks,
                 size_t count);

// Adds one whole block: `above`, -`below` or 0. `zero` null: there are none.
void AddSigns(const uint8_t* negative, const uint8_t* zero, float above, float below, float* sum);

}  // namespace sluice::compress
