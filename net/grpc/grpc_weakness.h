// SPDX-License-Identifier: Apache-2.0
// LinkedGrpcVersion and GrpcWeakness: the version of gRPC, and the harm that untrusted hosts can do
// to a server because of it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// Returns the version of the gRPC library that this process uses, for example "1.51.1".
std::string LinkedGrpcVersion();

// Returns one log line for a server that untrusted hosts can reach. `version` is a result of
// LinkedGrpcVersion. Returns an empty string if this version has no known weakness or `version` is
// malformed.
std::string GrpcWeakness(absl::string_view version);

}  // namespace sluice::net
