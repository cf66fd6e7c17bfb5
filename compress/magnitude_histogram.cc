#include "compress/magnitude_histogram.h"

#include <algorithm>
#include <bit>

#include "compress/float_bits.h"

namespace sluice {
namespace {

constexpr int kBinShift = 20;
constexpr size_t kLine = 16;       // Floats of a cache line: what a sample is made of.
constexpr size_t kStrideMax = 64;  // Lines.

}  // namespace

void MagnitudeHistogram::Clear() {
  counts_.fill(0);
  total_ = 0;
}

void MagnitudeHistogram::Add(absl::Span<const float> gradient, absl::Span<const float> residual) {
  const size_t lines = (gradient.size() + kLine - 1) / kLine;
  const size_t stride = std::clamp<size_t>(gradient.size() / kSample, 1, kStrideMax);
  uint64_t sampled = 0;
  for (size_t line = 0; line < lines; line += stride) {
    const size_t from = line * kLine;
    const size_t to = std::min(from + kLine, gradient.size());
    for (size_t i = from; i < to; ++i) {
      const float acc = residual.empty() ? gradient[i] : gradient[i] + residual[i];
      counts_[MagnitudeBits(acc) >> kBinShift] += stride;
    }
    sampled += to - from;
  }
  total_ += sampled * stride;
}

void MagnitudeHistogram::Merge(const MagnitudeHistogram& other) {
  for (int bin = 0; bin < kBins; ++bin) counts_[bin] += other.counts_[bin];
  total_ += other.total_;
}

float MagnitudeHistogram::ThresholdFor(double density) const {
  double wanted = density * static_cast<double>(total_);
  for (int bin = kBins - 1; bin > 0; --bin) {
    const double count = static_cast<double>(counts_[bin]);
    if (wanted > count) {
      wanted -= count;
      continue;
    }
    if (count == 0) continue;
    // Within an octave the bits of a float are linear in its value: near enough to its logarithm
    // over 1/8 octave, and the same on every machine, which a library's exp2 is not.
    const double offset = (1.0 - wanted / count) * (1 << kBinShift);
    const uint32_t bits = (static_cast<uint32_t>(bin) << kBinShift) + static_cast<uint32_t>(offset);
    return ToShortFloat(std::bit_cast<float>(std::min(bits, kLargestShortBits)));
  }
  return 0;
}

}  // namespace sluice
