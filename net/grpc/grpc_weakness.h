// GrpcWeakness: what strangers can do to a server because of the gRPC that it runs with.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// For one log line of a server that strangers can reach. `version`: grpc::Version(), such as
// "1.51.1". Empty: nothing is known of this version, or the text is no version.
std::string GrpcWeakness(absl::string_view version);

}  // namespace sluice::net
