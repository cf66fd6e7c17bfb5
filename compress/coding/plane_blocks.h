// SPDX-License-Identifier: Apache-2.0
// Blocks of kStochasticBlock codes in bit planes, as in payloads. Each plane of a block of c
// elements has ceil(c / 8) bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/string_view.h"
#include "compress/coding/index_coding.h"
#include "compress/simd/stochastic.h"

namespace sluice::compress {

inline constexpr size_t kPlaneBytes = kStochasticBlock / 8;
inline constexpr size_t kPlanesMax = 9;

// CutPlanes copies the planes of a whole block to planes of `count` elements. PadPlanes copies them
// back and pads the block with zeros.
inline void CutPlanes(const uint8_t* whole, size_t planes, size_t count, std::byte* out) {
  for (size_t i = 0; i < planes; ++i) {
    std::memcpy(out + i * BytesFor(count), whole + i * kPlaneBytes, BytesFor(count));
  }
}
inline void PadPlanes(const std::byte* planes, size_t number, size_t count, uint8_t* whole) {
  std::fill(whole, whole + number * kPlaneBytes, uint8_t{0});
  for (size_t i = 0; i < number; ++i) {
    std::memcpy(whole + i * kPlaneBytes, planes + i * BytesFor(count), BytesFor(count));
  }
}

// Returns a description of the first error in the planes of a whole block that contains `count`
// elements, or an empty string.
inline absl::string_view PlaneProblem(const uint8_t* whole, size_t planes, size_t count) {
  for (size_t word = 0; word < kPlaneBytes / 8; ++word) {
    uint64_t levels = 0, negative;
    std::memcpy(&negative, whole + 8 * word, 8);
    for (size_t i = 1; i < planes; ++i) {
      uint64_t plane;
      std::memcpy(&plane, whole + i * kPlaneBytes + 8 * word, 8);
      levels |= plane;
    }
    if ((negative & ~levels) != 0) return "a negative zero";
    const size_t first = 64 * word;
    const uint64_t beyond = count >= first + 64 ? 0
                            : count <= first    ? ~uint64_t{0}
                                                : ~uint64_t{0} << (count - first);
    if ((levels & beyond) != 0) return "bits after its last element";
  }
  return "";
}

}  // namespace sluice::compress
