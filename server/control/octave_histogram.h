// OctaveHistogram: how many values of |gradient + residual| lie in each octave, and their energy;
// half a kilobyte of one tensor says what a threshold would send, and what it would leave out.
// Histograms of many ranks and tensors add up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace sluice {

class OctaveHistogram {
 public:
  // Octave i has [2^(kLeast + i), 2^(kLeast + i + 1)); the first and last what is beyond them too.
  static constexpr int kOctaves = 64;
  static constexpr int kLeast = -48;

  // Values that are not finite count as the largest ones; zeros only in count().
  void Add(absl::Span<const float> values);
  // Of values that another process counted. `octave` is below kOctaves; energy is finite, not
  // negative.
  void AddOctave(int octave, uint64_t count, double energy);
  void AddZeros(uint64_t count) { count_ += count; }
  void Merge(const OctaveHistogram& other);

  uint64_t count() const { return count_; }
  double energy() const;
  // Values at or above the threshold, and the energy of those below: exact at powers of two.
  // Between them the count falls as a power of the threshold, and an octave's values lie evenly in
  // their logarithms.
  double CountFrom(double threshold) const;
  double EnergyBelow(double threshold) const;

 private:
  uint64_t count_ = 0;
  std::array<uint64_t, kOctaves> counts_{};
  std::array<double, kOctaves> energies_{};
};

}  // namespace sluice
