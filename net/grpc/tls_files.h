// What can be known to be wrong with the files of TLS before anybody connects: gRPC itself would
// only say that a handshake failed.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "net/grpc/transport_options.h"

namespace sluice::net {

// INVALID_ARGUMENT: which flag and file, and why: missing, not PEM, a key of another certificate, a
// certificate that is over or does not count yet at `now`.
absl::Status CheckTlsFiles(const TransportOptions& options, absl::Time now);

}  // namespace sluice::net
