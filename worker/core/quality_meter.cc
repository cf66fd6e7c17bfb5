// SPDX-License-Identifier: Apache-2.0
#include "worker/core/quality_meter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compress/frame.h"

namespace sluice::worker {
namespace {

// Number of independent partial sums, which let compilers vectorize the loop.
constexpr size_t kLanes = 8;
using Lanes = std::array<double, kLanes>;

double Sum(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

CodingQuality Compare(absl::Span<const float> gradient, absl::Span<const float> sent,
                      absl::Span<const float> owed) {
  Lanes of_gradient{};
  Lanes of_sent{};
  Lanes of_wanted{};
  Lanes of_lost{};
  Lanes of_product{};
  const auto add = [&](size_t i, size_t lane) {
    const double g = gradient[i];
    const double s = sent[i];
    const double lost = owed.empty() ? g - s : double{owed[i]};
    of_gradient[lane] += g * g;
    of_sent[lane] += s * s;
    of_wanted[lane] += (s + lost) * (s + lost);
    of_lost[lane] += lost * lost;
    of_product[lane] += g * s;
  };
  const size_t whole = gradient.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (size_t i = whole; i < gradient.size(); ++i) add(i, 0);
  CodingQuality quality;
  quality.gradient = Sum(of_gradient);
  quality.wanted = Sum(of_wanted);
  quality.lost = Sum(of_lost);
  quality.owed = owed.empty() ? 0 : quality.lost;
  quality.sent = Sum(of_sent);
  quality.product = Sum(of_product);
  quality.chunks = 1;
  return quality;
}

}  // namespace

double CodingQuality::ResidualNormRatio() const {
  return gradient > 0 ? std::sqrt(owed / gradient) : 0;
}

double CodingQuality::CapturedEnergy() const { return wanted > 0 ? 1 - lost / wanted : 1; }

double CodingQuality::Cosine() const {
  const double norms = std::sqrt(gradient) * std::sqrt(sent);
  return norms > 0 ? product / norms : 0;
}

CodingQuality& CodingQuality::operator+=(const CodingQuality& other) {
  gradient += other.gradient;
  wanted += other.wanted;
  lost += other.lost;
  owed += other.owed;
  sent += other.sent;
  product += other.product;
  chunks += other.chunks;
  return *this;
}

QualityMeter::QualityMeter(size_t chunks, uint64_t every)
    : every_(every), chunks_(every > 0 ? chunks : 0) {}

void QualityMeter::Measure(uint32_t chunk, absl::Span<const float> gradient,
                           absl::Span<const std::byte> frame, absl::Span<const float> owed) {
  if (!compress::DecodeAlone(frame)) return;
  sent_.assign(gradient.size(), 0);
  compress::AddValidFrames(frame, absl::MakeSpan(sent_));
  chunks_[chunk] = Compare(gradient, sent_, owed);
}

CodingQuality QualityMeter::quality() const {
  CodingQuality all;
  for (const CodingQuality& chunk : chunks_) all += chunk;
  return all;
}

}  // namespace sluice::worker
