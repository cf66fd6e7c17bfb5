// SPDX-License-Identifier: Apache-2.0
// HttpServer: a read-only port with GET and HEAD, in plaintext or with TLS. The caller's function
// makes the answer for each path. Untrusted clients can reach this port, so every request and every
// client has limits. One thread accepts connections, reads and writes, and never blocks. Two
// other threads call the function; one of these serves only health requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/http/http_answer.h"

namespace sluice::net {

struct HttpOptions {
  std::string listen{};  // HOST:PORT. Port 0 selects any free port.
  // PEM files. If both are empty, the port is in plaintext. The files are read at each handshake,
  // so a new certificate needs no restart.
  std::string tls_cert{};
  std::string tls_key{};
  // With TLS, a PEM file with CAs. If it is set, clients must show a certificate from one of these
  // CAs.
  std::string tls_client_ca{};
  // Names that clients may use in addition to IP addresses, localhost, this host's name, the name
  // in `listen` and the names in the certificate. The name ".example.org" allows every name that
  // ends with it.
  std::vector<std::string> names{};

  // Time limit for receiving a complete request, and again for sending its answer.
  std::chrono::milliseconds patience{5000};
  size_t connections_max = 64;
  size_t connections_per_peer_max = 16;  // Limit per IPv4 address or IPv6 /64 network.
  // Limit for unsent bytes of answers, over all connections.
  size_t untaken_bytes_max = size_t{16} << 20;
};

class HttpServer {
 public:
  // Starts the server. Fails with UNAVAILABLE if it cannot listen at `listen`, and with
  // INVALID_ARGUMENT if `listen` is not HOST:PORT. If `pages` throws an exception, the client gets
  // a server error.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, HttpPages pages);
  // Waits at most one second for answers in flight. Then waits for pages that are being made.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string url() const = 0;  // Address for a browser, with a slash at the end.
};

}  // namespace sluice::net
