// SPDX-License-Identifier: Apache-2.0
// Powers with integer exponents that have the same bits on every machine. The C library selects a
// variant of std::pow by instruction set, and the variants differ in the last place.
#pragma once

#include <cstdint>

namespace sluice {

// Returns base^exponent, computed by repeated squaring. The relative error is below exponent *
// 2^-52. 0^0 is 1.
inline double PowerOf(double base, uint64_t exponent) {
  double power = 1;
  for (double square = base; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= square;
    square *= square;
  }
  return power;
}

}  // namespace sluice
