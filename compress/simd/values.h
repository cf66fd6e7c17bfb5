// SPDX-License-Identifier: Apache-2.0
// Kernels that convert the values of sparse codecs to the codes of compress/coding/sparse_values.h
// and back. The rounding error (value - decoded) replaces each value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// Returns the sum of |values[i]| in fp64: element i is added to lane i mod 8, and then the lanes
// are added in order.
double SumOfMagnitudes(const float* values, size_t count);

// Sets codes[i] to values[i] / step, rounded to nearest even and limited to ±127. If step is not
// above 0, all codes are 0.
void ToBytes(float step, float* values, int8_t* codes, size_t count);
void FromBytes(float step, const int8_t* codes, float* values, size_t count);

// Converts values to nibbles, two to a byte, the first in the low half. Bits 0-2 are q =
// (|value| - floor) / step, rounded half up, from 0 to 7. Bit 3 is the sign. The decoded value is
// ±(floor + q * step). If step is not above 0, q is 0. With an odd count, the high half of the last
// byte is 0.
void ToNibbles(float floor, float step, float* values, uint8_t* packed, size_t count);
void FromNibbles(float floor, float step, const uint8_t* packed, float* values, size_t count);

// Converts values to bits, eight to a byte, starting with the lowest bit. A bit is 1 for negative
// values. The decoded value is ±step. Bits after the last value are 0.
void ToSignBits(float step, float* values, uint8_t* bits, size_t count);
// Decodes `count` values, beginning with bit `first`. Reads only the bytes that contain their bits.
void FromSignBits(float step, const uint8_t* bits, size_t first, float* values, size_t count);

}  // namespace sluice::compress
