#include "net/grpc/connection_reason.h"

#include "absl/strings/match.h"

namespace sluice::net {

std::string ConnectionReason(absl::string_view reason, bool tls) {
  const auto says = [&](absl::string_view words) { return absl::StrContains(reason, words); };
  if (says("Connection refused")) return "connection refused";
  if (says("WRONG_VERSION_NUMBER") || says("wrong version number")) {
    return "this side speaks TLS, and the other does not: start the server with --tls-cert and "
           "--tls-key, or leave the TLS flags out here";
  }
  if (says("CERTIFICATE_VERIFY_FAILED") || says("certificate verify failed")) {
    return "the server's certificate cannot be verified: is --tls-ca here the CA that issued it, "
           "and has it not expired?";
  }
  if (says("Hostname Verification Check failed") || says("is not in peer certificate")) {
    return "the server's certificate is not for this address: its subjectAltName must name the "
           "host that is dialled";
  }
  const bool closed = says("Connection reset") || says("Socket closed") || says("Broken pipe");
  // gRPC's words for what went wrong before a connection was up.
  if (closed && says("failed to connect")) {
    return tls ? "the connection was closed in the handshake: does the server demand a certificate "
                 "of its --tls-ca (--tls-cert, --tls-key here), and is this one of it?"
               : "the connection was closed before anything was said: if it speaks TLS, give "
                 "--tls-ca here";
  }
  return closed ? "the connection was closed" : std::string(reason);
}

}  // namespace sluice::net
