// SPDX-License-Identifier: Apache-2.0
// Explains a failed connection and suggests checks. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// `reason` is gRPC's message. `tls` says whether this side uses TLS.
std::string ConnectionReason(absl::string_view reason, bool tls);

}  // namespace sluice::net
