// HttpServer: a port that is only to be read: GET and HEAD, in plaintext or with TLS. What is at a
// path a function says, which is called on its threads for each request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct HttpOptions {
  std::string listen{};  // HOST:PORT, port 0: any that is free.
  // PEM files; both empty: plaintext. Read at each handshake: a new certificate needs no restart.
  std::string tls_cert{};
  std::string tls_key{};
};

struct HttpAnswer {
  int status = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body{};
};

using HttpPages = std::function<HttpAnswer(const std::string& path)>;

class HttpServer {
 public:
  // UNAVAILABLE: cannot listen there. INVALID_ARGUMENT: not HOST:PORT. An exception of `pages` is
  // answered as an error of the server's.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, HttpPages pages);
  // Waits for requests under way.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string url() const = 0;  // As a browser wants it, with a slash at the end.
};

}  // namespace sluice
