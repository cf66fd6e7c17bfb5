// SPDX-License-Identifier: Apache-2.0
// Checks TLS files before the first connection, because gRPC would only report a failed handshake.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "net/grpc/transport_options.h"

namespace sluice::net {

// Fails with INVALID_ARGUMENT if a file is missing or is not PEM, if the key belongs to another
// certificate, or if a certificate is expired or not yet valid at `now`. The message names the
// flag, the file and the problem.
absl::Status CheckTlsFiles(const TransportOptions& options, absl::Time now);

}  // namespace sluice::net
