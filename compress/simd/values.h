// Kernels of sparse values: floats to the codes of compress/coding/sparse_values.h and back. What a
// code loses, value - decoded, takes the value's place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::compress {

// In fp64: element i goes to lane i mod 8, lanes are added in order.
double SumOfMagnitudes(const float* values, size_t count);

// codes[i] = values[i] / step rounded to nearest even, at most ±127; 0 if step is not above 0.
void ToBytes(float step, float* values, int8_t* codes, size_t count);
void FromBytes(float step, const int8_t* codes, float* values, size_t count);

// Nibbles, the first of a byte in its low half: bits 0-2 are q = (|value| - floor) / step rounded
// half up, from 0 to 7, bit 3 the sign; decoded: ±(floor + q * step). A step that is not above 0:
// q = 0. An odd last byte has a high half of 0.
void ToNibbles(float floor, float step, float* values, uint8_t* packed, size_t count);
void FromNibbles(float floor, float step, const uint8_t* packed, float* values, size_t count);

// Bits, the first of a byte lowest: 1 for negative values; decoded: ±step. Bits after the last
// are 0.
void ToSignBits(float step, float* values, uint8_t* bits, size_t count);
// From bit `first` on. Reads no byte that holds none of them.
void FromSignBits(float step, const uint8_t* bits, size_t first, float* values, size_t count);

}  // namespace sluice::compress
