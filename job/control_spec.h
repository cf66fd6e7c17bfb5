// SPDX-License-Identifier: Apache-2.0
// ControlSpec: the job file's `control` section and its schedules. A schedule is known before the
// job starts and defines the density in every step.
//
//   dense      steps 0 .. d-1 use fp16. One of the kinds below follows; it counts steps from d.
//   constant   the density `end`
//   exponential  start x (end / start)^(i / stages) in stage i = 0 .. stages-1; all stages
//              take `steps` steps; then `end`. DGC's warm-up is start 25 %, end 25 % x 4^-stages.
//   piecewise  the density of the last piece that has begun
//   cyclic     up and down between `end` and `start` in equal logarithmic steps: stage i of
//              2 x stages in a period of `steps` has start x (end / start)^(t / stages),
//              t = min(i, 2 stages - i)
//
// Densities between start and end are rounded to three digits. Rounded densities are easier to read
// and do not depend on a processor's arithmetic.
//
// Densities change in stages instead of in every step, which keeps the number of plans small. The
// first step of the job is step 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec_spec.h"
#include "job/enums.h"
#include "protocol/job_defaults.h"

namespace sluice::job {

// A plan that is made in step t takes effect in step t + kPlanDelay. The plan travels with a result
// of step t, and no worker can reach step t + kPlanDelay without that result (docs/protocol.md).
inline constexpr uint64_t kPlanDelay = 2;

enum class ScheduleKind : uint8_t { kConstant, kExponential, kPiecewise, kCyclic };

struct SchedulePiece {
  uint64_t from = 0;  // First step of the piece, counted after the dense steps.
  double density = 1;
};

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  uint64_t dense_steps = 0;
  double start = 0.25;
  double end = 0.01;
  uint64_t steps = 0;
  uint32_t stages = 1;
  std::vector<SchedulePiece> pieces{};
};

// Checks a schedule. Fails with INVALID_ARGUMENT, naming the problem, if
// - a density is outside (0, 1],
// - there are no stages or too many for the steps,
// - the pieces do not begin at 0 or are out of order, or
// - the density changes in step 1, because no plan can reach step 1.
absl::Status ValidateSchedule(const ScheduleSpec& spec);

// Returns the density in a step, or no value while the job is dense. `spec` must be valid.
std::optional<double> DensityAt(const ScheduleSpec& spec, uint64_t step);

// A point on the reference curve, which the policy compares with the validation metric.
struct CurvePoint {
  uint64_t step = 0;  // Number of steps done.
  double metric = 0;  // In percent; higher is better.
};
inline constexpr size_t kCurvePointsMax = 10'000;

// Checks a reference curve. Fails with INVALID_ARGUMENT, naming the problem, if there are no points
// or too many, a metric is not finite, or the steps do not ascend.
absl::Status ValidateCurve(const std::vector<CurvePoint>& curve);

struct ControlSpec {
  PolicyKind policy = PolicyKind::kFixed;
  ScheduleSpec schedule{};
  // bandwidth and auto: the codecs that a plan may choose, and the share of the computing time that
  // communication can overlap. bandwidth: the allowed time per step; by default this is the
  // computing time.
  std::vector<compress::CodecSpec> candidates{};
  std::optional<double> step_time_s{};
  double overlap = protocol::defaults::kControlOverlap;
  // accuracy: the metric's curve in a dense run, and the shortfall, in points, that the policy
  // tolerates before it sends more.
  std::vector<CurvePoint> reference{};
  double tolerance = protocol::defaults::kControlTolerance;

  // Returns true if the job makes plans. Otherwise the job file's codecs apply throughout.
  bool makes_plans() const { return policy != PolicyKind::kFixed; }
  // Returns true if plans depend on measurements and not only on the step.
  bool measures() const { return makes_plans() && policy != PolicyKind::kSchedule; }
};

}  // namespace sluice::job
