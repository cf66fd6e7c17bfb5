#include "server/shard/contribution_guard.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "compress/frame.h"
#include "compress/simd/compensate.h"
#include "server/shard/guard_notice.h"

namespace sluice::server {
namespace {

constexpr double kErrorsMin = 4;  // Standard errors; see the header.
// A lower bound of the variance of a cosine, so that a few equal cosines prove nothing.
constexpr double kVarianceMin = 1e-4;
// Smaller norms count as 0, because fp32 cannot hold their reciprocals.
constexpr double kNormMin = 1e-30;

// Adds in 16 lanes, as SumOfSquares does, so that the result is the same on every machine.
double DotProduct(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (; i < count; ++i) {
    lanes[i % kLanes] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double ContributionGuard::Decode(size_t chunk, uint32_t count, const HeldContribution& from) {
  chunk_.assign(count, 0.0f);
  compress::AddValidFrames(protocol::FrameBytes(from.frames[chunk]), absl::MakeSpan(chunk_));
  const double norm = std::sqrt(compress::SumOfSquares(chunk_.data(), count)) / from.weight;
  return norm < kNormMin ? 0 : norm;
}

bool ContributionGuard::HasOutlier(absl::Span<const double> norms) const {
  const double bound = spec_.limit * LowerMedian({norms.begin(), norms.end()});
  return *std::max_element(norms.begin(), norms.end()) > bound;
}

void ContributionGuard::Probe(uint32_t bundle, size_t chunk, uint32_t count,
                              absl::Span<const HeldContribution> contributions,
                              std::vector<double>* norms) {
  total_.assign(count, 0.0f);
  for (const HeldContribution& contribution : contributions) {
    const double norm = Decode(chunk, count, contribution);
    norms->push_back(norm);
    if (norm == 0) continue;
    const auto factor = static_cast<float>(1 / (norm * contribution.weight));
    compress::AddScaled(factor, chunk_.data(), count, total_.data());
  }
  const double median = LowerMedian(*norms);
  // If most contributions have no value in this chunk, it says nothing about the others.
  if (median == 0) return;
  const size_t first = samples_.size();
  for (size_t i = 0; i < contributions.size(); ++i) {
    samples_.push_back({.bundle = bundle,
                        .rank = contributions[i].rank,
                        .norm_ratio = (*norms)[i] / median});
  }
  AddCosines(chunk, count, contributions, *norms, absl::MakeSpan(samples_).subspan(first));
}

// With u the scaled contribution and T the sum of all, the cosine to the sum of the others is
// u (T - u) / |T - u|, and |T - u|^2 = |T|^2 - 2 u T + 1.
void ContributionGuard::AddCosines(size_t chunk, uint32_t count,
                                   absl::Span<const HeldContribution> contributions,
                                   absl::Span<const double> norms, absl::Span<Sample> samples) {
  const double total = compress::SumOfSquares(total_.data(), count);
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (norms[i] == 0) continue;
    Decode(chunk, count, contributions[i]);
    const double along = DotProduct(chunk_.data(), total_.data(), count) /
                         (norms[i] * contributions[i].weight);
    const double others = total - 2 * along + 1;
    if (others > 0) samples[i].cosine = std::clamp((along - 1) / std::sqrt(others), -1.0, 1.0);
  }
}

std::vector<double> ContributionGuard::WholeNorms(absl::Span<const uint32_t> counts,
                                                  absl::Span<const HeldContribution> contributions) {
  std::vector<double> norms;
  for (const HeldContribution& contribution : contributions) {
    double squares = 0;
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
      const double norm = Decode(chunk, counts[chunk], contribution);
      squares += norm * norm;
    }
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

void ContributionGuard::JudgeNorms(uint64_t step, absl::Span<const HeldContribution> contributions,
                                   absl::Span<const double> norms, std::vector<float>* factors) {
  const double median = LowerMedian({norms.begin(), norms.end()});
  if (median == 0) return;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (norms[i] <= spec_.limit * median) continue;
    RankAgreement& figures = figures_[contributions[i].rank];
    Course& course = courses_[contributions[i].rank];
    ++figures.outliers;
    course.watched_until = step + kWatchSteps;
    course.worst = std::max(course.worst, norms[i] / median);
    watching_until_ = std::max(watching_until_, course.watched_until);
    if (spec_.policy == job::GuardPolicy::kClip) {
      ++figures.clipped;
      (*factors)[i] = static_cast<float>(median / norms[i]);
    } else if (spec_.policy == job::GuardPolicy::kSkip) {
      (*factors)[i] = 0;
    }
  }
}

// Leaves out contributions of ranks that oppose the others, unless that would be half of them.
void ContributionGuard::JudgeDirections(absl::Span<const HeldContribution> contributions,
                                        std::vector<float>* factors) {
  if (spec_.policy != job::GuardPolicy::kSkip) return;
  const auto opposes = [&](const HeldContribution& contribution) {
    return figures_[contribution.rank].opposes;
  };
  const auto opposing = std::count_if(contributions.begin(), contributions.end(), opposes);
  if (2 * static_cast<size_t>(opposing) >= contributions.size()) return;
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (opposes(contributions[i])) (*factors)[i] = 0;
  }
}

std::vector<float> ContributionGuard::Judge(uint64_t step, uint32_t bundle,
                                            absl::Span<const uint32_t> counts,
                                            absl::Span<const HeldContribution> contributions) {
  if (contributions.size() < kContributionsMin) return {};
  const size_t chunk = CounterRandom(seed_, step, bundle).Below(counts.size());
  std::vector<double> norms;
  Probe(bundle, chunk, counts[chunk], contributions, &norms);
  std::vector<float> factors(contributions.size(), 1.0f);
  if (step <= watching_until_ || HasOutlier(norms)) {
    JudgeNorms(step, contributions, WholeNorms(counts, contributions), &factors);
  }
  JudgeDirections(contributions, &factors);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] == 0) ++figures_[contributions[i].rank].left_out;
  }
  if (std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; })) {
    return {};
  }
  return factors;
}

void ContributionGuard::Follow(uint32_t rank, double norm_ratio, double cosine) {
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
  figures_[rank].norm_ratio = norm_ratio;
  figures_[rank].cosine = mean;
}

void ContributionGuard::UpdateOpposition(uint64_t step, std::vector<Notice>* out) {
  std::vector<double> means;
  for (uint32_t rank = 0; rank < courses_.size(); ++rank) {
    if (courses_[rank].cosines.size() >= kStepsMin) means.push_back(figures_[rank].cosine);
  }
  if (means.size() < kContributionsMin) return;
  const double median = LowerMedian(means);
  for (uint32_t rank = 0; rank < courses_.size(); ++rank) {
    RankAgreement& figures = figures_[rank];
    const double far = kErrorsMin * courses_[rank].error;
    if (courses_[rank].cosines.size() < kStepsMin) continue;
    if (!figures.opposes && figures.cosine < -far && median > far) {
      figures.opposes = true;
      const bool skips = spec_.policy == job::GuardPolicy::kSkip;
      out->push_back(RankNotice(
          step, rank,
          absl::StrFormat("the contributions of rank %d point against those of the other ranks "
                          "(mean cosine %.2f, the median rank's is %.2f); they %s",
                          rank, figures.cosine, median,
                          skips ? "are left out" : "still count")));
    } else if (figures.opposes && figures.cosine > 0) {
      figures.opposes = false;
      out->push_back(RankNotice(step, rank,
                                absl::StrCat("the contributions of rank ", rank,
                                             " no longer point against those of the others")));
    }
  }
}

std::vector<Notice> ContributionGuard::EndStep(uint64_t step) {
  std::vector<Notice> out;
  std::stable_sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) {
    return std::pair(a.rank, a.bundle) < std::pair(b.rank, b.bundle);
  });
  for (auto first = samples_.begin(); first != samples_.end();) {
    const auto last = std::find_if(first, samples_.end(), [&](const Sample& sample) {
      return sample.rank != first->rank;
    });
    double cosines = 0;
    double norm_ratio = 0;
    for (auto sample = first; sample != last; ++sample) {
      cosines += sample->cosine;
      norm_ratio = std::max(norm_ratio, sample->norm_ratio);
    }
    Follow(first->rank, norm_ratio, cosines / static_cast<double>(last - first));
    first = last;
  }
  samples_.clear();
  UpdateOpposition(step, &out);
  for (uint32_t rank = 0; rank < courses_.size(); ++rank) {
    Course& course = courses_[rank];
    if (course.worst > 0 && !std::exchange(course.told, true)) {
      out.push_back(OutlierNotice(spec_, step, rank, course.worst));
    }
    course.worst = 0;
    if (step >= course.watched_until) course.told = false;
    figures_[rank].suspect = figures_[rank].opposes || step < course.watched_until;
  }
  return out;
}

}  // namespace sluice::server
