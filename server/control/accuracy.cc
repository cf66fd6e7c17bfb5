// SPDX-License-Identifier: Apache-2.0
#include "server/control/accuracy.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "protocol/compression_plan.h"
#include "server/control/bit_allocation.h"

namespace sluice::server {
namespace {

// Replaces each point except the first and last with the median of itself and its neighbours.
std::vector<job::CurvePoint> Smoothed(const std::vector<job::CurvePoint>& curve) {
  std::vector<job::CurvePoint> smoothed = curve;
  for (size_t i = 1; i + 1 < curve.size(); ++i) {
    const double before = curve[i - 1].metric;
    const double after = curve[i + 1].metric;
    smoothed[i].metric =
        std::clamp(curve[i].metric, std::min(before, after), std::max(before, after));
  }
  return smoothed;
}

class AccuracyPolicy : public Policy {
 public:
  explicit AccuracyPolicy(AccuracyOptions options)
      : options_(std::move(options)), density_(options_.sparse.level) {}

  Choice First() override { return Make("no metric is known yet"); }

  std::optional<Choice> Next(const StepMeasurements& measured) override {
    if (!measured.validation || !std::isfinite(measured.validation->metric)) return std::nullopt;
    const job::CurvePoint tested = *measured.validation;
    const uint64_t step = ReferenceStep(tested.step);
    const std::optional<double> reference = MetricAt(options_.reference, step);
    if (!reference) return std::nullopt;
    behind_.push_back(*reference - tested.metric);
    if (behind_.size() > kAccuracyCalm) behind_.pop_front();
    ++reports_;
    if (behind_.size() < 2) return std::nullopt;
    const auto count = static_cast<double>(behind_.size());
    const double mean = std::accumulate(behind_.begin(), behind_.end(), 0.0) / count;
    double squares = 0;
    for (const double behind : behind_) squares += (behind - mean) * (behind - mean);
    const double surely = mean - std::sqrt(squares / (count - 1) / count);
    double density = density_;
    if (surely > options_.tolerance) {
      // A deficit of one tolerance is acceptable.
      const double tolerances = std::ceil(surely / options_.tolerance) - 1;
      density *= std::min(std::pow(kAccuracyUp, tolerances), kAccuracyUpMax);
      reports_ = 0;
    } else if (reports_ >= kAccuracyCalm && mean <= options_.tolerance / 2) {
      density *= kAccuracyDown;
      reports_ = 0;
    }
    density = std::clamp(density, options_.density_min, options_.density_max);
    if (density == density_) return std::nullopt;
    const double before = std::exchange(density_, density);
    return Make(absl::StrFormat(
        "%.2f %% at step %d, where the reference has %.2f %% at step %d (tolerance %.2g): "
        "%.3g %% of the values instead of %.3g %%",
        tested.metric, tested.step, *reference, step, options_.tolerance, 100 * density,
        100 * before));
  }

  std::unique_ptr<Policy> Clone() const override { return std::make_unique<AccuracyPolicy>(*this); }

 private:
  // Returns the reference step to compare with. It lags less behind `step` towards the end, where
  // the result counts.
  uint64_t ReferenceStep(uint64_t step) const {
    const uint64_t first = options_.reference.front().step;
    const uint64_t last = options_.reference.back().step;
    if (step < first || step >= last) return step;
    const double left = 1 - static_cast<double>(step) / static_cast<double>(last);
    const double behind = kAccuracyLag * left * static_cast<double>(step);
    return std::max(first, step - static_cast<uint64_t>(behind));
  }

  Choice Make(std::string reason) const {
    compress::CodecSpec codec = options_.sparse;
    codec.level = density_;
    const absl::StatusOr<Spent> spent = SpendEvenly(options_.tensors, codec);
    Choice choice;
    choice.down = spent.ok() ? spent->coding : Coding{};
    choice.up.assign(options_.ranks, choice.down);
    choice.reason = std::move(reason);
    return choice;
  }

  const AccuracyOptions options_;
  double density_;
  std::deque<double> behind_;  // Deficits relative to the reference in the last reports.
  // Reports since the last change of density, even if a bound suppressed the change.
  size_t reports_ = 0;
};

}  // namespace

std::optional<double> MetricAt(const std::vector<job::CurvePoint>& curve, uint64_t step) {
  if (step < curve.front().step) return std::nullopt;
  const auto after =
      std::upper_bound(curve.begin(), curve.end(), step,
                       [](uint64_t at, const job::CurvePoint& point) { return at < point.step; });
  if (after == curve.end()) return curve.back().metric;
  const job::CurvePoint& from = *std::prev(after);
  const double way =
      static_cast<double>(step - from.step) / static_cast<double>(after->step - from.step);
  return std::lerp(from.metric, after->metric, way);
}

absl::StatusOr<std::unique_ptr<Policy>> MakeAccuracyPolicy(AccuracyOptions options) {
  if (options.ranks == 0 || options.tensors.empty()) {
    return absl::InvalidArgumentError("accuracy: no ranks or no tensors to plan for");
  }
  if (!protocol::IsSparse(options.sparse.codec)) {
    return absl::InvalidArgumentError(absl::StrCat("accuracy: ", ToString(options.sparse),
                                                   " has no density; use topk or topk_exact"));
  }
  if (!(options.density_min > 0 && options.density_min <= options.density_max &&
        options.density_max <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("accuracy: densities from ", options.density_min, " to ", options.density_max,
                     "; they must be in (0, 1], the lower one first"));
  }
  if (!(options.tolerance > 0 && std::isfinite(options.tolerance))) {
    return absl::InvalidArgumentError(
        absl::StrCat("accuracy: a tolerance of ", options.tolerance, " points; use one above 0"));
  }
  if (const absl::Status valid = job::ValidateCurve(options.reference); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("accuracy: ", valid.message()));
  }
  options.reference = Smoothed(options.reference);
  options.sparse.level = std::clamp(options.sparse.level, options.density_min, options.density_max);
  return std::make_unique<AccuracyPolicy>(std::move(options));
}

}  // namespace sluice::server
