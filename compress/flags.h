// Flags of a tile: a byte of 0 or 1 per element, as vectorised comparisons write them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice {

// The flags at `flags`, 64 of them, as bits.
inline uint64_t PackFlags(const uint8_t* flags) {
  uint64_t bits = 0;
  for (size_t i = 0; i < 8; ++i) {
    uint64_t bytes;
    std::memcpy(&bytes, flags + 8 * i, sizeof(bytes));
    // Moves the lowest bit of byte k to bit 56 + k; nothing else gets there.
    bits |= (bytes * 0x0102040810204080u) >> 56 << (8 * i);
  }
  return bits;
}

// Calls fn(index) for the flags that are 1, in order. Reads `count` rounded up to 64; those beyond
// must be 0.
template <typename Fn>
inline void ForEachFlag(const uint8_t* flags, size_t count, Fn fn) {
  for (size_t at = 0; at < count; at += 64) {
    for (uint64_t bits = PackFlags(flags + at); bits != 0; bits &= bits - 1) {
      fn(at + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
}

}  // namespace sluice
