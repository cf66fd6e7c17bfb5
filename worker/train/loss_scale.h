// SPDX-License-Identifier: Apache-2.0
// LossScale: the factor that multiplies a loss before backward, so that float16 gradients neither
// underflow nor overflow. It is as large as possible: it doubles after many good steps in a row and
// halves on an overflow. Independent of LibTorch.
#pragma once

#include <cstdint>

namespace sluice::worker {

class LossScale {
 public:
  static constexpr double kFirst = 65536;
  static constexpr double kLeast = 1;
  static constexpr double kLargest = 0x1p120;   // Its inverse is a normal float.
  static constexpr uint32_t kGrowAfter = 2000;  // Good steps in a row.

  // A power of 2, so that scaling does not round.
  double value() const { return value_; }
  uint32_t good_steps() const { return good_steps_; }
  // Returns true if the scale cannot be reduced after another overflow.
  bool at_least() const { return value_ <= kLeast; }

  // Call it after each step in which this rank had data. `overflowed` is true if the step's
  // gradients overflowed.
  void Update(bool overflowed);
  // Restores a saved state. Returns false, and changes nothing, if the values are not a valid
  // state.
  bool Restore(double value, int64_t good_steps);

 private:
  double value_ = kFirst;
  uint32_t good_steps_ = 0;  // In a row, at this scale.
};

}  // namespace sluice::worker
