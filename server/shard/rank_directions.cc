// SPDX-License-Identifier: Apache-2.0
#include "server/shard/rank_directions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/shard/guard_notice.h"
#include "server/shard/lower_median.h"

namespace sluice::server {
namespace {

constexpr double kErrorsMin = 4;  // Standard errors; see the header.
// A lower bound of the variance of a cosine, so that a few equal cosines prove nothing.
constexpr double kVarianceMin = 1e-4;

}  // namespace

void RankDirections::Follow(uint32_t rank, double cosine, RankAgreement* figures) {
  Course& course = courses_[rank];
  course.cosines.push_back(cosine);
  if (course.cosines.size() > kWindow) course.cosines.pop_front();
  const auto count = static_cast<double>(course.cosines.size());
  double sum = 0;
  double squares = 0;
  for (const double value : course.cosines) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / count;
  course.error = std::sqrt(std::max(squares / count - mean * mean, kVarianceMin) / count);
  figures->cosine = mean;
}

std::vector<Notice> RankDirections::Update(uint64_t step, absl::Span<RankAgreement> figures) const {
  std::vector<double> means;
  for (size_t rank = 0; rank < courses_.size(); ++rank) {
    if (courses_[rank].cosines.size() >= kCosinesMin) means.push_back(figures[rank].cosine);
  }
  if (means.size() < kRanksMin) return {};
  const double median = LowerMedian(means);
  std::vector<Notice> out;
  for (uint32_t rank = 0; rank < courses_.size(); ++rank) {
    if (courses_[rank].cosines.size() < kCosinesMin) continue;
    RankAgreement& of_rank = figures[rank];
    const double far = kErrorsMin * courses_[rank].error;
    if (!of_rank.opposes && of_rank.cosine < -far && median > far) {
      of_rank.opposes = true;
      const bool skips = policy_ == job::GuardPolicy::kSkip;
      out.push_back(RankNotice(
          step, rank,
          absl::StrFormat("the contributions of rank %d point against those of the other ranks "
                          "(mean cosine %.2f, the median rank's is %.2f); they %s",
                          rank, of_rank.cosine, median, skips ? "are left out" : "still count")));
    } else if (of_rank.opposes && of_rank.cosine > 0) {
      of_rank.opposes = false;
      out.push_back(RankNotice(step, rank,
                               absl::StrCat("the contributions of rank ", rank,
                                            " no longer point against those of the others")));
    }
  }
  return out;
}

}  // namespace sluice::server
