// HttpServer: /metrics, /livez, /readyz and the status page of one server, read-only.
// `view` is called on its threads, for each request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_view.h"

namespace sluice {

class HttpServer {
 public:
  // `listen`: HOST:PORT, port 0: any that is free. UNAVAILABLE: cannot listen there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           std::function<HttpView()> view);
  // Waits for requests under way.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace sluice
