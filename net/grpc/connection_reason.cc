// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/connection_reason.h"

#include "absl/strings/match.h"

namespace sluice::net {

std::string ConnectionReason(absl::string_view reason, bool tls) {
  const auto says = [&](absl::string_view words) { return absl::StrContains(reason, words); };
  if (says("Connection refused")) return "connection refused";
  if (says("WRONG_VERSION_NUMBER") || says("wrong version number")) {
    return "this side uses TLS, but the other does not: start the server with --tls-cert and "
           "--tls-key, or leave out the TLS flags here";
  }
  if (says("CERTIFICATE_VERIFY_FAILED") || says("certificate verify failed")) {
    return "the server's certificate cannot be verified: check that --tls-ca here is the CA that "
           "issued it, and that it has not expired";
  }
  if (says("Hostname Verification Check failed") || says("is not in peer certificate")) {
    return "the server's certificate is not for this address: its subjectAltName must name this "
           "host";
  }
  const bool closed = says("Connection reset") || says("Socket closed") || says("Broken pipe");
  // gRPC's messages for failures before the connection was established.
  if (closed && says("failed to connect")) {
    return tls ? "the connection was closed in the handshake: if the server requires a client "
                 "certificate, give one that its --tls-ca issued (--tls-cert, --tls-key here)"
               : "the connection was closed before any data arrived: if the server uses TLS, give "
                 "--tls-ca here";
  }
  return closed ? "the connection was closed" : std::string(reason);
}

}  // namespace sluice::net
