// ControlSpec: the job file's `control` section, and the schedules that it can name: a density for
// every step, known beforehand.
//
//   dense      steps 0 .. d-1: fp16, before any of the kinds below; they count steps from d on
//   constant   end
//   exponential  start x (end / start)^(i / stages) in stage i = 0 .. stages-1 of `steps` steps in
//              all, `end` from then on. DGC's warm-up is start 25 %, end 25 % x 4^-stages.
//   piecewise  the density of the last piece that has begun
//   cyclic     up and down between `end` and `start`, evenly in the logarithm: stage i of
//              2 x stages in a period of `steps` has start x (end / start)^(t / stages),
//              t = min(i, 2 stages - i)
//
// What is between start and end is rounded to three digits, which people read more easily and which
// do not depend on a processor's mathematics.
//
// Stages, and not a change in every step, so that plans stay few. Steps are counted from 0, which
// is the first that the job does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compress/codec_spec.h"

namespace sluice::job {

// A plan that is made in step t holds from t + kPlanDelay: it rides on a result of t, without which
// nobody can be there (docs/protocol.md).
inline constexpr uint64_t kPlanDelay = 2;

enum class ScheduleKind : uint8_t { kConstant, kExponential, kPiecewise, kCyclic };

struct SchedulePiece {
  uint64_t from = 0;  // Steps after the dense ones.
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

// INVALID_ARGUMENT names what is wrong: densities outside (0, 1], no stages or more than steps,
// pieces that do not begin at 0 or are not in order, a change in step 1, which no plan can bring.
absl::Status ValidateSchedule(const ScheduleSpec& spec);

// The density of a step; none while dense. `spec` is valid.
std::optional<double> DensityAt(const ScheduleSpec& spec, uint64_t step);

// Of a reference that a validation metric is held against.
struct CurvePoint {
  uint64_t step = 0;  // Steps that were done.
  double metric = 0;  // In percent, more is better.
};
inline constexpr size_t kCurvePointsMax = 10'000;

// INVALID_ARGUMENT names what is wrong: no point or too many, a metric that is not finite, a step
// that is not after the one before it.
absl::Status ValidateCurve(const std::vector<CurvePoint>& curve);

struct ControlSpec {
  std::string policy = "fixed";  // fixed, schedule, bandwidth, auto, accuracy
  ScheduleSpec schedule{};
  // bandwidth and auto: what a plan may choose, and the share of computing that communication can
  // hide behind. bandwidth: how long a step may take; none: as long as it computes.
  std::vector<compress::CodecSpec> candidates{};
  std::optional<double> step_time_s{};
  double overlap = 0.7;
  // accuracy: a dense run's, and how many points below it are no reason to send more.
  std::vector<CurvePoint> reference{};
  double tolerance = 0.5;

  // Plans are made; else all is as the job file says, always.
  bool makes_plans() const { return policy != "fixed"; }
  // By what is measured, so that plans do not follow from the step.
  bool measures() const { return makes_plans() && policy != "schedule"; }
};

}  // namespace sluice::job
