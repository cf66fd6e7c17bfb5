// The policy `accuracy`: as few bytes as a validation metric allows. It holds what is reported
// against a reference curve: below it by more than the tolerance, density rises; well within the
// tolerance, density falls.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/control/policy.h"

namespace sluice::server {

struct AccuracyOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  compress::CodecSpec sparse{};  // Its level is the first density.
  double density_min = 1e-4;
  double density_max = 0.25;
  // A dense run's, in order of steps. Between points the metric is read off a straight line; before
  // the first it is not judged, after the last that one counts.
  std::vector<job::CurvePoint> reference{};
  double tolerance = 0.5;  // Points.
};

// The last kAccuracyCalm reports, two at least, say what happens to the density. Their mean, less
// its standard error, below the reference by more than the tolerance: x kAccuracyUp for each
// tolerance that it is below, up to kAccuracyUpMax. Their mean not below it by more than half of
// the tolerance, and all of them since the last change: x kAccuracyDown. Down is slower than up:
// what a run has lost it must make up for, and tests are few. One test alone is noise, and so is
// one point of the reference: each counts as the median of it and its neighbours.
inline constexpr double kAccuracyUp = 2;
inline constexpr double kAccuracyUpMax = 8;
inline constexpr double kAccuracyDown = 0.5;
inline constexpr size_t kAccuracyCalm = 3;
// A run may be kAccuracyLag x its steps x the share of steps that is left behind the reference in
// time: early, where the metric rises by points from test to test, every run is, and catches up.
inline constexpr double kAccuracyLag = 0.25;

// The reference at a step; none before its first point. `curve` is valid.
std::optional<double> MetricAt(const std::vector<job::CurvePoint>& curve, uint64_t step);

// INVALID_ARGUMENT names what is wrong: no rank or tensor, a codec that is not sparse, densities
// that are not in (0, 1] and in order, a curve that is none (ValidateCurve), a tolerance that is
// not above 0.
absl::StatusOr<std::unique_ptr<Policy>> MakeAccuracyPolicy(AccuracyOptions options);

}  // namespace sluice::server
