// SPDX-License-Identifier: Apache-2.0
#include "server/shard/contribution_guard.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "server/shard/guard_notice.h"
#include "server/shard/lower_median.h"

namespace sluice::server {
namespace {

constexpr double kUnknown = 2;  // No cosine.
constexpr uint32_t kWindowElements = 4096;
// Norms of frames that hold every element need fewer elements. A sparse frame has only about 40
// values in a window, and its index makes the whole window cheap.
constexpr uint32_t kDenseNormElements = 512;

}  // namespace

ContributionGuard::Window ContributionGuard::ChooseWindow(uint64_t random,
                                                          absl::Span<const uint32_t> counts) {
  const uint64_t elements = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  uint64_t at = CounterRandom::Scaled(random, elements);
  size_t chunk = 0;
  while (at >= counts[chunk]) at -= counts[chunk++];
  const uint32_t first = static_cast<uint32_t>(at) / kWindowElements * kWindowElements;
  return {chunk,
          {.count = counts[chunk],
           .first = first,
           .size = std::min(kWindowElements, counts[chunk] - first)}};
}

ContributionGuard::Window ContributionGuard::ForNorms(
    Window window, absl::Span<const HeldContribution> contributions) {
  const std::string& frames = contributions.front().frames[window.chunk];
  if (compress::DecodeInParts(protocol::FrameBytes(frames))) {
    window.part.size = std::min(window.part.size, kDenseNormElements);
  }
  return window;
}

uint32_t ContributionGuard::ComparedBundle(uint64_t step) const {
  std::vector<uint32_t> due;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    const protocol::Bundle& of = bundles_[bundle];
    if (!of.buffers && protocol::IsFragmentDue(fragments_, of.fragment, step)) {
      due.push_back(bundle);
    }
  }
  return due[CounterRandom(seed_, step).Below(due.size())];
}

double ContributionGuard::NormIn(const Window& window, const HeldContribution& contribution) {
  const absl::Span<const std::byte> frames =
      protocol::FrameBytes(contribution.frames[window.chunk]);
  const double norm = std::sqrt(compress::SquaresIn(window.part, frames, &decoded_));
  return norm / contribution.weight < compress::kNormMin ? 0 : norm / contribution.weight;
}

std::vector<double> ContributionGuard::NormsIn(const Window& window,
                                               absl::Span<const HeldContribution> contributions) {
  std::vector<double> norms;
  for (const HeldContribution& contribution : contributions) {
    norms.push_back(NormIn(window, contribution));
  }
  return norms;
}

std::vector<double> ContributionGuard::WholeNorms(
    absl::Span<const uint32_t> counts, absl::Span<const HeldContribution> contributions) {
  std::vector<double> squares(contributions.size());
  for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
    const std::vector<double> norms =
        NormsIn({chunk, compress::WholeChunk(counts[chunk])}, contributions);
    for (size_t i = 0; i < norms.size(); ++i) squares[i] += norms[i] * norms[i];
  }
  for (double& value : squares) value = std::sqrt(value);
  return squares;
}

bool ContributionGuard::HasOutlier(absl::Span<const double> norms) const {
  const double bound = spec_.limit * LowerMedian({norms.begin(), norms.end()});
  return *std::max_element(norms.begin(), norms.end()) > bound;
}

void ContributionGuard::NoteRatios(absl::Span<const HeldContribution> contributions,
                                   absl::Span<const double> norms) {
  const double median = LowerMedian({norms.begin(), norms.end()});
  if (median == 0) return;
  ratios_.resize(figures_.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    double& ratio = ratios_[contributions[i].rank];
    ratio = std::max(ratio, norms[i] / median);
  }
}

// With u the scaled contribution and T the sum of all, the cosine to the sum of the others is
// u (T - u) / |T - u|, and |T - u|^2 = |T|^2 - 2 u T + 1. |T|^2 is the sum of all u T.
void ContributionGuard::Compare(Window window, absl::Span<const HeldContribution> contributions) {
  const auto frames_of = [&](size_t i) {
    return protocol::FrameBytes(contributions[i].frames[window.chunk]);
  };
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (!compress::DecodeInParts(frames_of(i))) {
      window.part = compress::WholeChunk(window.part.count);
    }
  }
  std::vector<double> norms = NormsIn(window, contributions);
  // If most contributions have no value here, the window says nothing.
  if (LowerMedian(norms) == 0) return;
  total_.assign(window.part.size, 0.0f);
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (norms[i] == 0) continue;
    norms[i] *= contributions[i].weight;
    compress::AddScaledPart(window.part, frames_of(i), static_cast<float>(1 / norms[i]), &decoded_,
                            absl::MakeSpan(total_));
  }
  std::vector<double> along(contributions.size());
  double total = 0;
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (norms[i] == 0) continue;
    along[i] = compress::DotWithPart(window.part, frames_of(i), total_, &decoded_) / norms[i];
    total += along[i];
  }
  cosines_.assign(figures_.size(), kUnknown);
  for (size_t i = 0; i < contributions.size(); ++i) {
    const double others = total - 2 * along[i] + 1;
    if (norms[i] == 0 || others <= 0) continue;
    cosines_[contributions[i].rank] = std::clamp((along[i] - 1) / std::sqrt(others), -1.0, 1.0);
  }
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
  Window window = ChooseWindow(CounterRandom(seed_, step, bundle).Next(), counts);
  std::vector<double> norms = NormsIn(ForNorms(window, contributions), contributions);
  if (LowerMedian(norms) == 0) {
    // Gradients may be zero in the window.
    window.part = compress::WholeChunk(window.part.count);
    norms = NormsIn(window, contributions);
  }
  std::vector<float> factors(contributions.size(), 1.0f);
  if (step <= watching_until_ || HasOutlier(norms)) {
    norms = WholeNorms(counts, contributions);
    JudgeNorms(step, contributions, norms, &factors);
  }
  NoteRatios(contributions, norms);
  if (bundle == ComparedBundle(step)) Compare(window, contributions);
  JudgeDirections(contributions, &factors);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] == 0) ++figures_[contributions[i].rank].left_out;
  }
  if (std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; })) {
    return {};
  }
  return factors;
}

std::vector<Notice> ContributionGuard::EndStep(uint64_t step) {
  for (uint32_t rank = 0; rank < ratios_.size(); ++rank) {
    if (ratios_[rank] > 0) figures_[rank].norm_ratio = ratios_[rank];
  }
  ratios_.clear();
  for (uint32_t rank = 0; rank < cosines_.size(); ++rank) {
    if (cosines_[rank] != kUnknown) directions_.Follow(rank, cosines_[rank], &figures_[rank]);
  }
  cosines_.clear();
  std::vector<Notice> out = directions_.Update(step, absl::MakeSpan(figures_));
  for (uint32_t rank = 0; rank < courses_.size(); ++rank) {
    Course& course = courses_[rank];
    if (course.worst > 0 && !std::exchange(course.told, true)) {
      out.push_back(OutlierNotice(spec_, step, rank, course.worst));
    }
    course.worst = 0;
    watching_until_ = std::max(watching_until_, course.watched_until);
    if (step >= course.watched_until) course.told = false;
    figures_[rank].suspect = figures_[rank].opposes || step < course.watched_until;
  }
  return out;
}

}  // namespace sluice::server
