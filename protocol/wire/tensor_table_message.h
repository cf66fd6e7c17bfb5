// SPDX-License-Identifier: Apache-2.0
// Conversion of tensor tables. Servers and workers use it.
#pragma once

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/common.pb.h"

namespace sluice::protocol {

// Size limit of a message with a table. It allows 256 bytes for each tensor that a job can have.
inline constexpr size_t kTableBytesMax = kMaxTensors << 8;

void TableToProto(const TensorTable& table, v1::TensorTable* message);

// Fails with INVALID_ARGUMENT if a count is over its limit, a type or role is unknown, or the hash
// does not match the tensors.
absl::StatusOr<TensorTable> TableFromProto(const v1::TensorTable& message);

}  // namespace sluice::protocol
