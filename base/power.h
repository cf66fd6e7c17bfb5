// Powers with whole exponents, of which every machine has the same bits: std::pow is the C
// library's, whose variants for instruction sets differ in the last place.
#pragma once

#include <cstdint>

namespace sluice {

// base^exponent by squaring; its relative error is below exponent * 2^-52. 0^0 is 1.
inline double PowerOf(double base, uint64_t exponent) {
  double power = 1;
  for (double square = base; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= square;
    square *= square;
  }
  return power;
}

}  // namespace sluice
