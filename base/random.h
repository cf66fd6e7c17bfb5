// Counter-based random numbers: a pure function of (seed, counters), so that nothing needs saving
// and a replay draws the same. SplitMix64's finalizer over a keyed counter (Steele, Lea and Flood,
// OOPSLA 2014).
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

// A stream of 64-bit numbers; copying it copies its place.
class CounterRandom {
 public:
  constexpr explicit CounterRandom(uint64_t seed, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0)
      : key_(MixBits(MixBits(MixBits(MixBits(seed + kStep) ^ (a + kStep)) ^ (b + kStep)) ^
                     (c + kStep))) {}

  constexpr uint64_t Next() { return At(counter_++); }
  // What Next returns after `index` others, wherever the stream is.
  constexpr uint64_t At(uint64_t index) const { return MixBits(key_ + kStep * (index + 1)); }
  // In [0, bound); bound > 0. Multiply-shift: the bias is below 2^-32 for bounds under 2^32.
  constexpr uint64_t Below(uint64_t bound) { return Scaled(Next(), bound); }
  // Below, of a number that was drawn already.
  static constexpr uint64_t Scaled(uint64_t drawn, uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(drawn) * bound) >> 64);
  }
  // In [0, 1).
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace sluice
