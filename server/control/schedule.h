// Schedule: a density for every step, known beforehand, and the policy that follows it.
//
//   dense      steps 0 .. d-1: fp16, before any of the kinds below; they count steps from d on
//   constant   end
//   exponential  start x (end / start)^(i / stages) in stage i = 0 .. stages-1 of `steps` steps in
//              all, `end` from then on. DGC's warm-up is start 25 %, end 25 % x 4^-stages.
//   piecewise  the density of the last piece that has begun
//   cyclic     up and down between `end` and `start`, evenly in the logarithm: stage i of 2 x
//   stages in a
//              period of `steps` has start x (end / start)^(t / stages), t = min(i, 2 stages - i)
//
// Stages, and not a change in every step, so that plans stay few.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/control/policy.h"

namespace sluice {

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

// `sparse` with the schedule's density on all ranks and the shards, small tensors dense. Errors:
// ValidateSchedule's, and `sparse` is not a sparse codec.
absl::StatusOr<std::unique_ptr<Policy>> MakeSchedulePolicy(const ScheduleSpec& spec,
                                                           const CodecSpec& sparse,
                                                           std::vector<ControlledTensor> tensors,
                                                           uint32_t ranks);

}  // namespace sluice
