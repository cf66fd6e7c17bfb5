// GrpcWeakness: describes the harm that untrusted hosts can do to a server because of its gRPC
// version.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// Returns one log line for a server that untrusted hosts can reach. `version` is the result of
// grpc::Version(), for example "1.51.1". Returns an empty string if this version has no known
// weakness or `version` is malformed.
std::string GrpcWeakness(absl::string_view version);

}  // namespace sluice::net
