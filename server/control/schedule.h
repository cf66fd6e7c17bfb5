// SPDX-License-Identifier: Apache-2.0
// The policy `schedule`: follows a schedule (job/control_spec.h), which sets a density for every
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/control_spec.h"
#include "server/control/policy.h"

namespace sluice::server {

// The coding of each tensor without a plan.
struct BaseCoding {
  std::vector<compress::CodecSpec> up{};
  std::vector<compress::CodecSpec> down{};
};

// Applies the schedule's density, on all ranks and shards, to all tensors with a sparse codec in
// `base`. While the schedule is dense, these tensors are fp16. Other tensors keep their codec.
// Fails as ValidateSchedule does, and with INVALID_ARGUMENT if `base` has no sparse codec.
absl::StatusOr<std::unique_ptr<Policy>> MakeSchedulePolicy(const job::ScheduleSpec& spec,
                                                           BaseCoding base,
                                                           std::vector<ControlledTensor> tensors,
                                                           uint32_t ranks);

}  // namespace sluice::server
