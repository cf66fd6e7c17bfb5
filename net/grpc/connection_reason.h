// Why a connection did not come about, in words that say what to look at. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// `reason`: gRPC's. `tls`: whether this side speaks it.
std::string ConnectionReason(absl::string_view reason, bool tls);

}  // namespace sluice::net
