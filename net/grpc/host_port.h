// SPDX-License-Identifier: Apache-2.0
// Reads the forms in which addresses occur: HOST:PORT and gRPC's names of peers. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

// Returns true if only this host's processes can reach it: localhost, 127.0.0.0/8 or [::1].
// Any other name may resolve to any address.
bool IsLoopback(absl::string_view host_port);

// Returns the IP:PORT in a ServerContext::peer string. Returns an empty string if the peer has
// another form.
std::string AddressOfPeer(absl::string_view peer);

}  // namespace sluice::net
