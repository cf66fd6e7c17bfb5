// The head of an HTTP CONNECT request (RFC 9110, 9.3.6), as gRPC sends it to its proxy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

inline constexpr size_t kConnectHeadMax = 8192;

struct ConnectRequest {
  uint16_t port = 0;
  size_t head_size = 0;  // What follows is the tunnel's. 0: the head has not ended yet.
};

// For tunnels to 127.0.0.1, localhost or [::1] only. INVALID_ARGUMENT: not a CONNECT, another host,
// a bad port, or no end within kConnectHeadMax.
absl::StatusOr<ConnectRequest> ParseConnectRequest(absl::string_view bytes);

}  // namespace sluice::cli
