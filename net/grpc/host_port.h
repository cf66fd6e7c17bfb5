// Determines from HOST:PORT which hosts can reach an address. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice::net {

// Returns true if only this host's processes can reach it: localhost, 127.0.0.0/8 or [::1].
// Any other name may resolve to any address.
bool IsLoopback(absl::string_view host_port);

}  // namespace sluice::net
