// SPDX-License-Identifier: Apache-2.0
// Conversion between plain types and the messages between a shard and the coordinator. Converting
// from a message checks every size and range.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "protocol/shard_control.h"
#include "sluice/v1/shard_control.pb.h"

namespace sluice::protocol {

v1::ShardHello HelloToProto(const ShardArrival& arrival);
ShardArrival HelloFromProto(const v1::ShardHello& message);

v1::ShardHealth HealthToProto(const ShardHealthReport& health);
// Converts a report. Figures that are not finite or not above 0 become 0.
ShardHealthReport HealthFromProto(const v1::ShardHealth& message);

v1::ShardCommand CommandToProto(uint64_t sequence, const ShardCommand& command);
// Fails with INVALID_ARGUMENT if the command contradicts itself, and with UNIMPLEMENTED if this
// version does not know the command.
absl::StatusOr<ShardCommand> CommandFromProto(const v1::ShardCommand& message);

}  // namespace sluice::protocol
