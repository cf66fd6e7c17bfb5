// SPDX-License-Identifier: Apache-2.0
// Functions of the standard library that nvcc compiles wrongly in device code, without a warning.
// Code that also runs on a GPU calls these instead.
//
// std::min and std::max take references. A constant has no address on a GPU, and nvcc compiles a
// reference to one into an instruction that stops the kernel. The functions of <bit> for 64 bits,
// and std::countr_zero for any size, call built-in functions of the host's compiler that nvcc does
// not know. It drops the call, and the result is 0.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

template <class T>
constexpr T Min(T a, T b) {
  return b < a ? b : a;
}

template <class T>
constexpr T Max(T a, T b) {
  return a < b ? b : a;
}

// Returns the number of bits that are needed to represent x; 0 for 0.
constexpr int BitWidth(uint32_t x) { return static_cast<int>(std::bit_width(x)); }
constexpr int BitWidth(uint64_t x) {
  const auto high = static_cast<uint32_t>(x >> 32);
  return high != 0 ? 32 + BitWidth(high) : BitWidth(static_cast<uint32_t>(x));
}

// Returns the largest power of two that is not above x; 0 for 0.
constexpr uint64_t BitFloor(uint64_t x) { return x == 0 ? 0 : uint64_t{1} << (BitWidth(x) - 1); }

constexpr int PopCount(uint32_t x) { return std::popcount(x); }

// x must not be 0.
constexpr int CountTrailingZeros(uint32_t x) { return BitWidth(x & (0 - x)) - 1; }

}  // namespace sluice
