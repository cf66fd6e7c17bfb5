// HttpServer: /metrics, the status page and its status.json, /livez, /readyz and /startupz of one
// server, read-only. `view` is called on its threads, for each request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_view.h"

namespace sluice {

struct HttpOptions {
  std::string listen{};      // HOST:PORT, port 0: any that is free.
  bool health_only = false;  // /livez, /readyz and /startupz, and nothing else.
  // PEM files; both empty: plaintext. Read at each handshake: a new certificate needs no restart.
  std::string tls_cert{};
  std::string tls_key{};
};

class HttpServer {
 public:
  // UNAVAILABLE: cannot listen there. INVALID_ARGUMENT: not HOST:PORT.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options,
                                                           std::function<HttpView()> view);
  // Waits for requests under way.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace sluice
