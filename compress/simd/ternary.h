// SPDX-License-Identifier: Apache-2.0
// The kernel of codec `ternary`. One pass over memory computes the kept elements, the scale and the
// residual of each block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

inline constexpr size_t kTernaryBlock = 256;

// A scale is a float with 3 bits of mantissa, stored as the upper 11 bits below the sign.
inline constexpr int kTernaryScaleShift = 20;
inline constexpr uint32_t kTernaryScaleMax = 0x7F7;  // The largest scale below infinity.

// The bit in a kept element's entry that marks a negative value. The lower bits are the position.
inline constexpr uint32_t kTernaryNegative = 0x80000000;
// Number of entries after the kept ones that EncodeTernary may overwrite in `entries`.
inline constexpr size_t kTernarySlack = 16;

// Encodes `count` whole blocks. The first element has position `first`. acc = gradient + residual.
// An element is kept if it is not 0 and its magnitude is at least `share` times the largest
// magnitude in the block. The scale is the mean magnitude of the kept elements. residual = acc -
// decoded. Writes an entry for each kept element, in order, and the code of the scale for each
// block (0 if the block keeps no element). Returns the number of kept elements.
size_t EncodeTernary(const float* gradient, float* residual, float share, uint32_t first,
                     uint32_t* entries, uint32_t* scales, size_t count);

// Computes gaps[i], the number of positions between entries i - 1 and i. The first gap counts from
// position 0. Bit i of `negative`, starting with the lowest bit of the first byte, is the sign of
// entry i. Bits after the last entry are 0.
void SplitEntries(const uint32_t* entries, size_t count, uint32_t* gaps, uint8_t* negative);

}  // namespace sluice::compress
