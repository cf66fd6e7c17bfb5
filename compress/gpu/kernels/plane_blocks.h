// SPDX-License-Identifier: Apache-2.0
// Blocks of 512 codes in bit planes, in the format of compress/coding/plane_blocks.h: first the
// signs, then each bit of the levels. A plane of c elements has ceil(c / 8) bytes.
#pragma once

#include "base/device_functions.h"
#include "compress/gpu/kernels/chunk.h"

namespace sluice::compress::gpu {

inline constexpr uint32_t kPlaneBlock = 512;

// A code consists of a level and a sign bit above the level. A level of 0 has no sign.
inline constexpr uint32_t kLevelMask = 0xFF;
constexpr uint16_t PlaneCode(uint32_t level, float x) {
  const uint32_t sign = level == 0 ? 0 : std::bit_cast<uint32_t>(x) & kSignBit;
  return static_cast<uint16_t>(level | sign >> 23);
}

constexpr uint32_t PlaneBlocks(uint32_t count) { return (count + kPlaneBlock - 1) / kPlaneBlock; }

// Returns the size of a plane of the block that contains element `at`.
constexpr uint32_t PlaneBytes(uint32_t count, uint32_t at) {
  return (Min(kPlaneBlock, count - at / kPlaneBlock * kPlaneBlock) + 7) / 8;
}

// Writes one byte of each plane; the planes are `bytes` apart. Levels above 0 are stored relative
// to `base`.
constexpr void PackPlanes(const Run<uint16_t, 8>& codes, uint32_t base, uint32_t planes,
                          uint32_t bytes, uint8_t* out) {
  for (uint32_t plane = 0; plane < planes; ++plane) {
    uint32_t byte = 0;
    for (int i = 0; i < 8; ++i) {
      const uint32_t level = codes.at[i] & kLevelMask;
      const uint32_t bit = level == 0   ? 0
                           : plane == 0 ? uint32_t{codes.at[i]} >> 8
                                        : (level - base) >> (plane - 1);
      byte |= (bit & 1) << i;
    }
    out[plane * bytes] = static_cast<uint8_t>(byte);
  }
}

// Returns the code of element `at` of a chunk, with base 0, from the planes of the element's block.
constexpr uint32_t CodeOfPlanes(const uint8_t* planes, uint32_t number, uint32_t bytes,
                                uint32_t at) {
  const uint32_t i = at % kPlaneBlock;
  uint32_t code = 0;
  for (uint32_t plane = 0; plane < number; ++plane) {
    const uint32_t bit = uint32_t{planes[plane * bytes + i / 8]} >> (i % 8) & 1;
    code |= bit << (plane == 0 ? 8 : plane - 1);
  }
  return code;
}

}  // namespace sluice::compress::gpu
