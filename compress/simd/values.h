// Kernels for the values of sparse codecs: floats to the codes of compress/coding/sparse_values.h
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

// Converts values to nibbles, of which the first is in the low half of a byte. Bits 0-2 are q =
// (|value| - floor) / step, rounded half up, from 0 to 7. Bit 3 is the sign. The decoded value is
// ±(floor + q * step). If step is not above 0, q is 0. With an odd count, the high half of the last
// byte is 0.
void ToNibbles(float floor, float step, float* values, uint8_t* packed, size_t count);
void FromNibbles(float floor, float step, const uint8_t* packed, float* values, size_t count);

// Converts values to bits, of which the first is the lowest of a byte. A bit is 1 for negative
// values. The decoded value is ±step. Bits after the last value are 0.
void ToSignBits(float step, float* values, uint8_t* bits, size_t count);
// Decodes values, beginning with bit `first`. Only bytes that contain such bits are read.
void FromSignBits(float step, const uint8_t* bits, size_t first, float* values, size_t count);

}  // namespace sluice::compress
