// SPDX-License-Identifier: Apache-2.0
#include "job/control_spec.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::job {
namespace {

constexpr size_t kPiecesMax = 1000;
constexpr uint64_t kStepsMax = uint64_t{1} << 32;  // Keeps steps x stages below 2^64.

bool IsDensity(double density) { return density > 0 && density <= 1; }

double Between(const ScheduleSpec& spec, uint64_t stage) {
  const double way = static_cast<double>(stage) / static_cast<double>(spec.stages);
  const double exact = spec.start * std::pow(spec.end / spec.start, way);
  double rounded = exact;
  return absl::SimpleAtod(absl::StrFormat("%.3g", exact), &rounded) ? rounded : exact;
}

absl::Status ValidateStages(const ScheduleSpec& spec) {
  const uint64_t stages = uint64_t{spec.stages} * (spec.kind == ScheduleKind::kCyclic ? 2 : 1);
  if (spec.steps > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", spec.steps, " steps; use at most ", kStepsMax));
  }
  // A stage takes at least two steps, because a plan needs two steps to reach the workers.
  if (stages == 0 || stages > spec.steps / kPlanDelay) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: ", stages, " stages in ", spec.steps, " steps; use from 1 to ",
                     spec.steps / kPlanDelay, ", because each takes at least two steps"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePieces(const ScheduleSpec& spec) {
  if (spec.pieces.empty() || spec.pieces.size() > kPiecesMax || spec.pieces[0].from != 0) {
    return absl::InvalidArgumentError(absl::StrCat("schedule: a piecewise schedule has 1 to ",
                                                   kPiecesMax, " pieces, the first from step 0"));
  }
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SchedulePiece& piece = spec.pieces[i];
    if (!IsDensity(piece.density)) {
      return absl::InvalidArgumentError(absl::StrCat("schedule: piece ", i, " has the density ",
                                                     piece.density, "; use one in (0, 1]"));
    }
    if (i > 0 && piece.from < spec.pieces[i - 1].from + kPlanDelay) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule: piece ", i, " begins at step ", piece.from,
                       ", less than two steps after the one before it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSchedule(const ScheduleSpec& spec) {
  if (spec.dense_steps == 1) {
    return absl::InvalidArgumentError(
        "schedule: 1 dense step; use 0, or 2 or more, because no plan can begin with step 1");
  }
  if (spec.kind == ScheduleKind::kPiecewise) return ValidatePieces(spec);
  if (!IsDensity(spec.start) || !IsDensity(spec.end)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: from ", spec.start, " to ", spec.end, "; densities are in (0, 1]"));
  }
  return spec.kind == ScheduleKind::kConstant ? absl::OkStatus() : ValidateStages(spec);
}

absl::Status ValidateCurve(const std::vector<CurvePoint>& curve) {
  if (curve.empty() || curve.size() > kCurvePointsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the reference has ", curve.size(),
                                                   " points; give from 1 to ", kCurvePointsMax,
                                                   " of a dense run's tests"));
  }
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!std::isfinite(curve[i].metric) || (i > 0 && curve[i].step <= curve[i - 1].step)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "point ", i, " of the reference (step ", curve[i].step, ", ", curve[i].metric,
          " %) is not a number, or its step is not after the previous one"));
    }
  }
  return absl::OkStatus();
}

std::optional<double> DensityAt(const ScheduleSpec& spec, uint64_t step) {
  if (step < spec.dense_steps) return std::nullopt;
  step -= spec.dense_steps;
  switch (spec.kind) {
    case ScheduleKind::kConstant:
      return spec.end;
    case ScheduleKind::kExponential:
      return step < spec.steps ? Between(spec, step * spec.stages / spec.steps) : spec.end;
    case ScheduleKind::kPiecewise: {
      const auto after =
          std::upper_bound(spec.pieces.begin(), spec.pieces.end(), step,
                           [](uint64_t at, const SchedulePiece& piece) { return at < piece.from; });
      return std::prev(after)->density;
    }
    case ScheduleKind::kCyclic: {
      const uint64_t stages = uint64_t{2} * spec.stages;
      const uint64_t stage = step % spec.steps * stages / spec.steps;
      return Between(spec, std::min(stage, stages - stage));
    }
  }
  return std::nullopt;
}

}  // namespace sluice::job
