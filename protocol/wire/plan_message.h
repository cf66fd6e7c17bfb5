// SPDX-License-Identifier: Apache-2.0
// Conversion of compression plans. Servers and workers use it.
#pragma once

#include "absl/status/statusor.h"
#include "protocol/compression_plan.h"
#include "sluice/v1/common.pb.h"

namespace sluice::protocol {

void PlanToProto(const CompressionPlan& plan, v1::CompressionPlan* message);

// Fails with INVALID_ARGUMENT if a codec cannot be parsed, an entry does not have exactly one
// direction, or a count is over its limit. CheckPlan decides whether the plan fits a job.
absl::StatusOr<CompressionPlan> PlanFromProto(const v1::CompressionPlan& message);

}  // namespace sluice::protocol
