// SPDX-License-Identifier: Apache-2.0
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
  // The bytes after the head belong to the tunnel. 0 if the head is incomplete.
  size_t head_size = 0;
};

// Accepts only tunnels to 127.0.0.1, localhost or [::1]. Fails with INVALID_ARGUMENT for other
// methods and hosts, for an invalid port, and for a head longer than kConnectHeadMax.
absl::StatusOr<ConnectRequest> ParseConnectRequest(absl::string_view bytes);

}  // namespace sluice::cli
