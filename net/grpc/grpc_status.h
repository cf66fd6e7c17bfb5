// SPDX-License-Identifier: Apache-2.0
// Conversion of absl::Status to grpc::Status.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace sluice::net {

// Converts a status. absl and gRPC use the same numbers for codes.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace sluice::net
