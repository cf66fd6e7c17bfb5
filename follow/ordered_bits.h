// SPDX-License-Identifier: Apache-2.0
// Ordered bit patterns: a numbering of the bit patterns of a float type in which neighbouring
// values have neighbouring numbers. Negative values come first, and -0 is next to +0. Every bit
// pattern has a number, including those of infinities and NaNs.
#pragma once

#include <cstdint>
#include <limits>

namespace sluice::follow {

// `Word` is uint16_t for bf16 and fp16, and uint32_t for fp32.
template <typename Word>
inline constexpr Word kTopBit = static_cast<Word>(Word{1}
                                                  << (std::numeric_limits<Word>::digits - 1));

template <typename Word>
constexpr Word ToOrdered(Word bits) {
  return static_cast<Word>(bits & kTopBit<Word> ? ~bits : bits | kTopBit<Word>);
}

template <typename Word>
constexpr Word FromOrdered(Word ordered) {
  return static_cast<Word>(ordered & kTopBit<Word> ? ordered ^ kTopBit<Word> : ~ordered);
}

// A step from one pattern to another, modulo the number of patterns. The magnitude is from 0 (equal
// patterns) to kTopBit<Word>.
struct Step {
  uint32_t magnitude = 0;
  bool down = false;
};

template <typename Word>
constexpr Step StepBetween(Word before, Word after) {
  const auto up = static_cast<Word>(ToOrdered(after) - ToOrdered(before));
  const bool down = up > kTopBit<Word>;
  return {.magnitude = down ? static_cast<Word>(Word{0} - up) : up, .down = down};
}

template <typename Word>
constexpr Word TakeStep(Word before, Step step) {
  const auto magnitude = static_cast<Word>(step.magnitude);
  const Word ordered = ToOrdered(before);
  return FromOrdered(static_cast<Word>(step.down ? ordered - magnitude : ordered + magnitude));
}

}  // namespace sluice::follow
