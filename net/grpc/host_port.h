// What HOST:PORT says of who can reach it. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice::net {

// Only from the same host: localhost, 127.0.0.0/8 or [::1]. Any other name may lead anywhere.
bool IsLoopback(absl::string_view host_port);

}  // namespace sluice::net
