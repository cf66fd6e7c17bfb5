// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/grpc_status.h"

#include <string>

namespace sluice::net {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace sluice::net
