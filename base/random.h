// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: each number is a pure function of (seed, counters). Therefore there
// is no state to save, and a replay draws the same numbers. The function is SplitMix64's finalizer
// over a keyed counter (Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace sluice {

constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return x;
}

// A stream of 64-bit numbers. A copy continues at the same position.
class CounterRandom {
 public:
  constexpr explicit CounterRandom(uint64_t seed, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0)
      : key_(MixBits(MixBits(MixBits(MixBits(seed + kStep) ^ (a + kStep)) ^ (b + kStep)) ^
                     (c + kStep))) {}

  constexpr uint64_t Next() { return At(counter_++); }
  // Returns the number that Next would return after `index` earlier calls from the start of the
  // stream. The stream's current position does not matter.
  constexpr uint64_t At(uint64_t index) const { return MixBits(key_ + kStep * (index + 1)); }
  // Returns a number in [0, bound); `bound` must be above 0. The function multiplies and shifts;
  // its bias is below 2^-32 for bounds under 2^32.
  constexpr uint64_t Below(uint64_t bound) { return Scaled(Next(), bound); }
  // Converts an already drawn number to the result that Below would return for it.
  static constexpr uint64_t Scaled(uint64_t drawn, uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(drawn) * bound) >> 64);
  }
  // Returns a number in [0, 1).
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace sluice
