// SPDX-License-Identifier: Apache-2.0
// Conversion of the messages between followers and those who serve weights.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "compress/element_type.h"
#include "follow/weights_version.h"
#include "protocol/weights.h"
#include "sluice/v1/weights.pb.h"

namespace sluice::protocol {

v1::DType TypeToProto(compress::ElementType type);
// No value stands for a type that this version does not know.
std::optional<compress::ElementType> TypeFromProto(v1::DType type);

void StateToProto(const follow::WeightsState& state, v1::WeightsState* message);
// Fails with INVALID_ARGUMENT if the digest does not have 32 bytes.
absl::StatusOr<follow::WeightsState> StateFromProto(const v1::WeightsState& message);

void DescriptionToProto(const WeightsDescription& description, v1::DescribeWeightsReply* message);
// Fails with INVALID_ARGUMENT if a count is over its limit or a value is impossible.
absl::StatusOr<WeightsDescription> DescriptionFromProto(const v1::DescribeWeightsReply& message);

}  // namespace sluice::protocol
