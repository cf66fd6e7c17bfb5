// Compression plans as messages: the same for servers and workers.
#pragma once

#include "absl/status/statusor.h"
#include "protocol/compression_plan.h"
#include "sluice/v1/common.pb.h"

namespace sluice::protocol {

void PlanToProto(const CompressionPlan& plan, v1::CompressionPlan* message);

// INVALID_ARGUMENT: a codec that cannot be read, an entry of no direction or of both, or more of
// something than there can be. Whether it fits a job is CheckPlan's to say.
absl::StatusOr<CompressionPlan> PlanFromProto(const v1::CompressionPlan& message);

}  // namespace sluice::protocol
