// SPDX-License-Identifier: Apache-2.0
#include "server/shard/update_guard.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/random.h"
#include "compress/simd/compensate.h"
#include "server/shard/guard_notice.h"
#include "server/shard/lower_median.h"

namespace sluice::server {
namespace {

constexpr size_t kBlock = 256;     // Elements of a block.
constexpr size_t kBlocksMin = 16;  // The guard reads at least this many blocks, if there are any.
constexpr size_t kOneIn = 16;      // In a large bundle, the guard reads one block in this many.

// Returns the norm of some blocks. They depend only on the bundle, so that norms of several ranks
// and steps can be compared although layers differ in scale.
double NormOfBlocks(uint64_t seed, uint32_t bundle, absl::Span<const float> values) {
  const size_t blocks = (values.size() + kBlock - 1) / kBlock;
  const size_t one_in = std::clamp<size_t>(blocks / kBlocksMin, 1, kOneIn);
  double squares = 0;
  for (size_t block = CounterRandom(seed, bundle).Below(one_in); block < blocks; block += one_in) {
    const absl::Span<const float> part = values.subspan(block * kBlock, kBlock);
    squares += compress::SumOfSquares(part.data(), part.size());
  }
  return std::sqrt(squares);
}

}  // namespace

double UpdateGuard::MedianOfOthers(uint32_t bundle, uint32_t rank) const {
  std::vector<double> others;
  for (uint32_t other = 0; other < courses_.size(); ++other) {
    if (other != rank && norms_[bundle][other] > 0) others.push_back(norms_[bundle][other]);
  }
  return others.size() < kOthersMin ? 0 : LowerMedian(std::move(others));
}

void UpdateGuard::JudgeNorm(uint64_t step, uint32_t bundle, uint32_t rank, double norm,
                            Verdict* verdict) {
  const double median = MedianOfOthers(bundle, rank);
  RankAgreement& figures = figures_[rank];
  if (median > 0) figures.norm_ratio = norm / median;
  if (median == 0 || norm <= spec_.limit * median) {
    norms_[bundle][rank] = norm;
    return;
  }
  // A large norm must not raise the bound for the next one.
  norms_[bundle][rank] = median;
  ++figures.outliers;
  if (step > courses_[rank].suspect_until) {
    verdict->notices.push_back(OutlierNotice(spec_, step, rank, norm / median));
  }
  courses_[rank].suspect_until = step + kSuspectSteps;
  if (spec_.policy == job::GuardPolicy::kClip) {
    ++figures.clipped;
    verdict->factor = static_cast<float>(median / norm);
  } else if (spec_.policy == job::GuardPolicy::kSkip) {
    verdict->factor = 0;
  }
}

bool UpdateGuard::IsOpposing(uint32_t rank) const {
  const auto opposing = std::count_if(figures_.begin(), figures_.end(),
                                      [](const RankAgreement& figures) { return figures.opposes; });
  return figures_[rank].opposes && 2 * static_cast<size_t>(opposing) < figures_.size();
}

UpdateGuard::Verdict UpdateGuard::Judge(uint64_t step, uint32_t bundle, uint32_t rank,
                                        absl::Span<const float> mean) {
  Verdict verdict;
  courses_[rank].step = std::max(courses_[rank].step, step);
  JudgeNorm(step, bundle, rank, NormOfBlocks(seed_, bundle, mean), &verdict);
  if (const std::optional<double> cosine = measured_.CosineOf(bundle, rank, mean)) {
    directions_.Follow(rank, *cosine, &figures_[rank]);
    for (Notice& notice : directions_.Update(step, absl::MakeSpan(figures_))) {
      verdict.notices.push_back(std::move(notice));
    }
  }
  if (spec_.policy == job::GuardPolicy::kSkip && IsOpposing(rank)) verdict.factor = 0;
  if (verdict.factor == 0) ++figures_[rank].left_out;
  return verdict;
}

std::vector<RankAgreement> UpdateGuard::figures() const {
  std::vector<RankAgreement> all = figures_;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].suspect = all[rank].opposes || courses_[rank].step < courses_[rank].suspect_until;
  }
  return all;
}

}  // namespace sluice::server
