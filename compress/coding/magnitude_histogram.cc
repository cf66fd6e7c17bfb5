// SPDX-License-Identifier: Apache-2.0
#include "compress/coding/magnitude_histogram.h"

#include <algorithm>
#include <bit>

#include "base/float_bits.h"
#include "base/random.h"
#include "hwy/cache_control.h"

namespace sluice::compress {
namespace {

constexpr int kMagnitudeHistogramBinShift = 20;
// Number of floats in a group: four cache lines, which load faster together than one by one.
constexpr size_t kGroup = 64;
constexpr size_t kBatch = 16;  // Number of groups in a batch.
constexpr size_t kStrideMax = 64;
// Number of counted values that should reach a threshold.
constexpr double kReach = 400;
constexpr uint64_t kLeast = 32768;

void PrefetchGroup(absl::Span<const float> values, size_t from) {
  constexpr size_t kLine = 16;
  for (size_t i = from; i < std::min(from + kGroup, values.size()); i += kLine) {
    hwy::Prefetch(values.data() + i);
  }
}

}  // namespace

void MagnitudeHistogram::Clear() {
  counts_.fill(0);
  total_ = 0;
}

size_t MagnitudeHistogram::StrideFor(uint64_t elements, double density) {
  const uint64_t sample = std::max(static_cast<uint64_t>(kReach / density), kLeast);
  return static_cast<size_t>(std::clamp<uint64_t>(elements / sample, 1, kStrideMax));
}

size_t MagnitudeHistogram::StrideOf(size_t values) {
  return std::clamp<size_t>(values / kSample, 1, kStrideMax);
}

void MagnitudeHistogram::Add(absl::Span<const float> gradient, absl::Span<const float> residual,
                             size_t stride) {
  const size_t size = gradient.size();
  if (size == 0) return;
  if (stride == 0) stride = StrideOf(size);
  const size_t groups = (size + kGroup - 1) / kGroup;
  stride = std::min(stride, groups);
  uint64_t counted = 0;
  size_t batch[kBatch];
  for (size_t first = 0; first < groups;) {
    size_t picked = 0;
    for (; picked < kBatch && first < groups; first += stride) {
      // The loop picks a random group in each stride. A fixed choice would be biased if the rows of
      // a matrix were as long as the stride.
      const size_t among = std::min(stride, groups - first);
      const size_t group = first + static_cast<size_t>(CounterRandom(first).Below(among));
      batch[picked++] = group * kGroup;
      if (stride == 1) continue;
      // The processor cannot predict the next group, so all groups of a batch are prefetched.
      PrefetchGroup(gradient, group * kGroup);
      PrefetchGroup(residual, group * kGroup);
    }
    for (const size_t from : absl::MakeSpan(batch).first(picked)) {
      const size_t to = std::min(from + kGroup, size);
      for (size_t i = from; i < to; ++i) {
        const float acc = residual.empty() ? gradient[i] : gradient[i] + residual[i];
        counts_[MagnitudeBits(acc) >> kMagnitudeHistogramBinShift] += stride;
      }
      counted += to - from;
    }
  }
  total_ += counted * stride;
}

void MagnitudeHistogram::Add(const MagnitudeHistogram& other) {
  for (size_t bin = 0; bin < counts_.size(); ++bin) counts_[bin] += other.counts_[bin];
  total_ += other.total_;
}

void MagnitudeHistogram::AddCounts(absl::Span<const uint32_t> counts) {
  for (size_t bin = 0; bin < counts_.size(); ++bin) {
    counts_[bin] += counts[bin];
    total_ += counts[bin];
  }
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
    // Within an octave, the bits of a float are linear in its value. Over 1/8 octave, this is close
    // enough to the logarithm. Unlike a library's exp2, the result is the same on every machine.
    const double offset = (1.0 - wanted / count) * (1 << kMagnitudeHistogramBinShift);
    const uint32_t bits =
        (static_cast<uint32_t>(bin) << kMagnitudeHistogramBinShift) + static_cast<uint32_t>(offset);
    return ToShortFloat(std::bit_cast<float>(std::min(bits, kLargestShortBits)));
  }
  return 0;
}

float MagnitudeHistogram::ThresholdForLargest() const {
  for (int bin = kBins - 1; bin > 0; --bin) {
    if (counts_[bin] == 0) continue;
    const uint32_t bits = static_cast<uint32_t>(bin) << kMagnitudeHistogramBinShift;
    return std::bit_cast<float>(std::min(bits, kLargestShortBits));
  }
  return 0;
}

}  // namespace sluice::compress
