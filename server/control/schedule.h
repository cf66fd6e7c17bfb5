// The policy that follows a schedule (job/control_spec.h): a density for every step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "job/control_spec.h"
#include "server/control/policy.h"

namespace sluice::server {

// How tensors are coded without a plan, by tensor.
struct BaseCoding {
  std::vector<compress::CodecSpec> up{};
  std::vector<compress::CodecSpec> down{};
};

// The schedule's density for all tensors whose codec in `base` is sparse, on all ranks and the
// shards, fp16 while it is dense; others stay as they are. Errors: ValidateSchedule's, and nothing
// in `base` is sparse.
absl::StatusOr<std::unique_ptr<Policy>> MakeSchedulePolicy(const job::ScheduleSpec& spec,
                                                           BaseCoding base,
                                                           std::vector<ControlledTensor> tensors,
                                                           uint32_t ranks);

}  // namespace sluice::server
