// HttpServer: a port that is only to be read: GET and HEAD, in plaintext or with TLS. A function
// makes the answer for each path. Strangers reach such a port, so every request and every client
// has limits. One thread takes connections, reads and writes, and never blocks. Two others call the
// function, one of them for health alone.
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
  std::string listen{};  // HOST:PORT, port 0: any that is free.
  // PEM files; both empty: plaintext. Read at each handshake: a new certificate needs no restart.
  std::string tls_cert{};
  std::string tls_key{};
  // With TLS; not empty: a PEM file with the CAs of which clients show a certificate.
  std::string tls_client_ca{};
  // Names under which it may be asked, beside IP addresses, localhost, this host's name, that of
  // `listen` and those of the certificate. ".example.org": all names that end with it.
  std::vector<std::string> names{};

  // Until a request is whole, and again until its answer is taken.
  std::chrono::milliseconds patience{5000};
  size_t connections_max = 64;
  size_t connections_per_peer_max = 16;         // Per IPv4 address or IPv6 /64 network.
  size_t untaken_bytes_max = size_t{16} << 20;  // Answer bytes of all connections together.
};

class HttpServer {
 public:
  // UNAVAILABLE: cannot listen there. INVALID_ARGUMENT: not HOST:PORT. An exception of `pages` is
  // answered as an error of the server's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, HttpPages pages);
  // Waits for answers under way, for a second at most, and for a page that is being made.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string url() const = 0;  // As a browser wants it, with a slash at the end.
};

}  // namespace sluice::net
