// The kernel of codec `ternary`: what a block keeps, its scale and the residual, in one pass over
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

inline constexpr size_t kTernaryBlock = 256;

// Bit i of both is element i, from the lowest bit of the first word on.
struct TernaryBlock {
  uint64_t kept[kTernaryBlock / 64];
  uint64_t negative[kTernaryBlock / 64];  // Of all elements, kept or not.
  uint32_t scale;                         // The code; 0: nothing is kept.
};

// A scale is a float with 3 bits of mantissa: the upper 11 bits below the sign.
inline constexpr int kTernaryScaleShift = 20;
inline constexpr uint32_t kTernaryScaleMax = 0x7F7;  // Below infinity.

// `count` whole blocks. acc = gradient + residual; what is at least share times the block's largest
// (and not 0) is kept; the scale is its mean magnitude; residual = acc - what is decoded.
void EncodeTernary(const float* gradient, float* residual, float share, TernaryBlock* blocks,
                   size_t count);

}  // namespace sluice
