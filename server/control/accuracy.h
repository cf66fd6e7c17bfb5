// SPDX-License-Identifier: Apache-2.0
// The policy `accuracy`: sends as few bytes as possible without harming a validation metric. The
// policy compares reported metrics with a reference curve. Density rises if the metric is below the
// curve by more than the tolerance, and falls if the metric is well within the tolerance.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/job_defaults.h"
#include "server/control/policy.h"

namespace sluice::server {

struct AccuracyOptions {
  uint32_t ranks = 1;
  std::vector<ControlledTensor> tensors{};
  compress::CodecSpec sparse{};  // The level of this codec is the initial density.
  double density_min = 1e-4;
  double density_max = 0.25;
  // The metrics of a dense run, in order of steps. The policy interpolates linearly between two
  // points and uses the last point for all later steps. It does not judge steps before the first
  // point.
  std::vector<job::CurvePoint> reference{};
  double tolerance = protocol::defaults::kControlTolerance;  // In percentage points.
};

// The policy judges the mean of the last kAccuracyCalm reports; it needs at least two. If the mean
// plus its standard error is below the reference by more than the tolerance, the policy multiplies
// density by kAccuracyUp for each tolerance beyond the first, up to a factor of kAccuracyUpMax. If
// the mean is below the reference by at most half of the tolerance and all these reports are newer
// than the last change, the policy multiplies density by kAccuracyDown. Density falls more slowly
// than it rises, because reports are rare and a run must make up for its losses. A single report or
// a single reference point is noisy. Therefore each reference point is replaced by the median of
// itself and its neighbours.
inline constexpr double kAccuracyUp = 2;
inline constexpr double kAccuracyUpMax = 8;
inline constexpr double kAccuracyDown = 0.5;
inline constexpr size_t kAccuracyCalm = 3;
// The policy lets a run lag behind the reference by kAccuracyLag x the run's steps so far x the
// share of steps that remain. Early in a run, the metric rises by several points between reports;
// every run lags there and catches up later.
inline constexpr double kAccuracyLag = 0.25;

// Returns the reference metric at a step, or nothing before the first point. `curve` must be valid.
std::optional<double> MetricAt(const std::vector<job::CurvePoint>& curve, uint64_t step);

// Fails with INVALID_ARGUMENT if there is no rank or tensor, the codec is not sparse, the densities
// are outside (0, 1] or out of order, the curve is invalid (ValidateCurve), or the tolerance is not
// above 0. The message names the fault.
absl::StatusOr<std::unique_ptr<Policy>> MakeAccuracyPolicy(AccuracyOptions options);

}  // namespace sluice::server
