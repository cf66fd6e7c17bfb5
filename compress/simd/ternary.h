// The kernel of codec `ternary`: what a block keeps, its scale and the residual, in one pass over
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kTernaryBlock = 256;

// A scale is a float with 3 bits of mantissa: the upper 11 bits below the sign.
inline constexpr int kTernaryScaleShift = 20;
inline constexpr uint32_t kTernaryScaleMax = 0x7F7;  // Below infinity.

// What is kept of a block: its position, and above it whether it is negative.
inline constexpr uint32_t kTernaryNegative = 0x80000000;
// Beyond what is kept, `entries` of EncodeTernary must have room for so many.
inline constexpr size_t kTernarySlack = 16;

// `count` whole blocks, the first element at position `first`. acc = gradient + residual; what is
// at least share times the block's largest (and not 0) is kept; the scale is its mean magnitude;
// residual = acc - what is decoded. Writes an entry for each kept one, in order, and for each block
// the code of its scale, 0 if nothing is kept. Returns how many are kept.
size_t EncodeTernary(const float* gradient, float* residual, float share, uint32_t first,
                     uint32_t* entries, uint32_t* scales, size_t count);

// gaps[i] = position of entry i - that of the one before - 1, the first counted from the start. Bit
// i of `negative`, from the lowest bit of its first byte on, is the sign of entry i; bits after the
// last are 0.
void SplitEntries(const uint32_t* entries, size_t count, uint32_t* gaps, uint8_t* negative);

}  // namespace sluice::compress
