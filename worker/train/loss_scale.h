// LossScale: what a loss is multiplied by before backward, so that float16 gradients neither vanish
// nor overflow. As large as goes: doubled after many good steps in a row, halved on an overflow.
// Knows nothing of LibTorch.
#pragma once

#include <cstdint>

namespace sluice::worker {

class LossScale {
 public:
  static constexpr double kFirst = 65536;
  static constexpr double kLeast = 1;
  static constexpr double kLargest = 0x1p120;   // Its inverse is a normal float.
  static constexpr uint32_t kGrowAfter = 2000;  // Good steps in a row.

  // A power of 2, so that scaling rounds nothing.
  double value() const { return value_; }
  uint32_t good_steps() const { return good_steps_; }
  // Overflows cannot be helped by a smaller scale.
  bool at_least() const { return value_ <= kLeast; }

  // After a step of this rank's with data: whether its gradients overflowed.
  void Update(bool overflowed);
  // What was saved. False, and nothing changed: it is no such state.
  bool Restore(double value, int64_t good_steps);

 private:
  double value_ = kFirst;
  uint32_t good_steps_ = 0;  // In a row, at this scale.
};

}  // namespace sluice::worker
