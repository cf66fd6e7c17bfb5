// SPDX-License-Identifier: Apache-2.0
#include "server/shard/contribution_merge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compress/frame.h"
#include "compress/frame_part.h"
#include "compress/simd/compensate.h"
#include "server/shard/lower_median.h"

namespace sluice::server {
namespace {

absl::Span<const std::byte> FramesOf(const HeldContribution& contribution, size_t chunk) {
  return protocol::FrameBytes(contribution.frames[chunk]);
}

}  // namespace

std::vector<double> ContributionMerge::Weights(
    absl::Span<const HeldContribution> contributions) const {
  std::vector<double> weights(contributions.size(), 1);
  if (spec_.weights == job::MergeWeights::kTokens) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto samples = static_cast<double>(contributions[i].work.samples);
      weights[i] = samples * samples / static_cast<double>(contributions[i].work.steps);
    }
    const double most = kWeightMax * LowerMedian(weights);
    for (double& weight : weights) weight = std::min(weight, most);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

void ContributionMerge::AddAll(absl::Span<const HeldContribution> contributions,
                               absl::Span<const double> parts, size_t chunk) {
  for (size_t i = 0; i < contributions.size(); ++i) {
    const double factor = parts[i] * double{contributions[i].factor};
    compress::AddScaledValidFrames(FramesOf(contributions[i], chunk), static_cast<float>(factor),
                                   &decoded_, absl::MakeSpan(sum_));
  }
}

void ContributionMerge::AddSenders(absl::Span<const HeldContribution> contributions,
                                   absl::Span<const double> parts, absl::Span<const double> weights,
                                   size_t chunk) {
  AddAll(contributions, parts, chunk);
  totals_.assign(sum_.size(), 0.0f);
  for (size_t i = 0; i < contributions.size(); ++i) {
    compress::AddWhereSent(FramesOf(contributions[i], chunk), static_cast<float>(weights[i]),
                           &decoded_, absl::MakeSpan(totals_));
  }
  for (size_t i = 0; i < sum_.size(); ++i) {
    if (totals_[i] > 0) sum_[i] /= totals_[i];
  }
}

void ContributionMerge::AddDirections(absl::Span<const HeldContribution> contributions,
                                      absl::Span<const double> parts, size_t chunk) {
  const compress::ChunkPart whole = compress::WholeChunk(static_cast<uint32_t>(sum_.size()));
  double length = 0;
  for (size_t i = 0; i < contributions.size(); ++i) {
    const absl::Span<const std::byte> frames = FramesOf(contributions[i], chunk);
    const double norm = std::sqrt(compress::SquaresIn(whole, frames, &decoded_));
    if (norm < compress::kNormMin) continue;
    length += parts[i] * double{contributions[i].factor} * norm;
    compress::AddScaledValidFrames(frames, static_cast<float>(parts[i] / norm), &decoded_,
                                   absl::MakeSpan(sum_));
  }
  const double direction = std::sqrt(compress::SumOfSquares(sum_.data(), sum_.size()));
  const auto scale = static_cast<float>(direction > 0 ? length / direction : 0);
  for (float& value : sum_) value *= scale;
}

void ContributionMerge::NoteShares(absl::Span<const HeldContribution> contributions,
                                   absl::Span<const double> parts) {
  std::fill(shares_.begin(), shares_.end(), 0);
  for (size_t i = 0; i < contributions.size(); ++i) {
    const uint32_t rank = contributions[i].rank;
    if (shares_.size() <= rank) shares_.resize(rank + size_t{1});
    shares_[rank] += parts[i] * double{contributions[i].factor};
  }
}

absl::Span<const float> ContributionMerge::MeanOf(uint64_t step,
                                                  absl::Span<const HeldContribution> contributions,
                                                  size_t chunk, uint32_t count) {
  Check(!contributions.empty(), "a merge needs one contribution");
  sum_.assign(count, 0.0f);
  const std::vector<double> weights = Weights(contributions);
  std::vector<double> parts = weights;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] *= double{spec_.LateFactor((step - contributions[i].origin_step) / fragments_)};
  }
  NoteShares(contributions, parts);
  if (spec_.method == job::MergeMethod::kRda) {
    AddDirections(contributions, parts, chunk);
  } else if (spec_.over == job::MergeOver::kSenders) {
    AddSenders(contributions, parts, weights, chunk);
  } else {
    AddAll(contributions, parts, chunk);
  }
  return sum_;
}

}  // namespace sluice::server
