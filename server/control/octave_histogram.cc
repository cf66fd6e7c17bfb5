#include "server/control/octave_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

double LowEnd(int octave) { return std::ldexp(1.0, OctaveHistogram::kLeast + octave); }

}  // namespace

void OctaveHistogram::Add(absl::Span<const float> values) {
  for (const float value : values) {
    ++count_;
    if (value == 0) continue;
    const bool finite = std::isfinite(value);
    const int octave =
        finite ? std::clamp(std::ilogb(value) - kLeast, 0, kOctaves - 1) : kOctaves - 1;
    const double magnitude = finite ? value : LowEnd(kOctaves - 1);
    ++counts_[octave];
    energies_[octave] += magnitude * magnitude;
  }
}

void OctaveHistogram::AddOctave(int octave, uint64_t count, double energy) {
  Check(octave >= 0 && octave < kOctaves, "no such octave");
  count_ += count;
  counts_[octave] += count;
  energies_[octave] += energy;
}

void OctaveHistogram::Merge(const OctaveHistogram& other) {
  count_ += other.count_;
  for (int octave = 0; octave < kOctaves; ++octave) {
    counts_[octave] += other.counts_[octave];
    energies_[octave] += other.energies_[octave];
  }
}

double OctaveHistogram::energy() const {
  double sum = 0;
  for (const double energy : energies_) sum += energy;
  return sum;
}

double OctaveHistogram::CountFrom(double threshold) const {
  double beyond = 0;
  for (int octave = kOctaves - 1; octave >= 0; --octave) {
    const double from = beyond + static_cast<double>(counts_[octave]);
    const double way = std::log2(threshold / LowEnd(octave));
    if (way <= 0) {
      beyond = from;
      continue;
    }
    if (way >= 1) return beyond;
    return beyond > 0 ? from * std::pow(beyond / from, way) : (1 - way) * from;
  }
  return beyond;
}

double OctaveHistogram::EnergyBelow(double threshold) const {
  double sum = 0;
  for (int octave = 0; octave < kOctaves; ++octave) {
    const double ratio = std::clamp(threshold / LowEnd(octave), 1.0, 2.0);
    sum += (ratio * ratio - 1) / 3 * energies_[octave];
  }
  return sum;
}

}  // namespace sluice
