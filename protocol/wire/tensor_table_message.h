// Tensor tables as messages: the same for servers and workers.
#pragma once

#include "absl/status/statusor.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/common.pb.h"

namespace sluice::protocol {

// The limit of one message; it allows 256 bytes for each tensor that a job can have.
inline constexpr size_t kTableBytesMax = kMaxTensors << 8;

void TableToProto(const TensorTable& table, v1::TensorTable* message);

// INVALID_ARGUMENT: more of something than there can be, a type or role that is unknown, or a hash
// that is not the tensors'.
absl::StatusOr<TensorTable> TableFromProto(const v1::TensorTable& message);

}  // namespace sluice::protocol
