#include "server/http/http_server.h"

#include <CivetServer.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/metrics_text.h"
#include "server/http/status_page.h"

namespace sluice {
namespace {

struct Response {
  int status = 200;
  const char* reason = "OK";
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

Response Respond(const std::string& path, const std::function<HttpView()>& view) {
  if (path == "/livez") return {.body = "alive\n"};
  if (path == "/readyz") {
    if (view().ready) return {.body = "ready\n"};
    return {.status = 503, .reason = "Service Unavailable", .body = "the job has not started\n"};
  }
  if (path == "/metrics") {
    const HttpView seen = view();
    if (!seen.metrics_enabled) {
      return {.status = 404, .reason = "Not Found", .body = "the job has metrics.enabled: false\n"};
    }
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = MetricsText(seen)};
  }
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = StatusPage(view())};
  return {
      .status = 404, .reason = "Not Found", .body = "there are /, /metrics, /livez and /readyz\n"};
}

void Write(mg_connection* connection, const Response& response) {
  mg_printf(
      connection,
      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
      response.status, response.reason, response.type, response.body.size());
  mg_write(connection, response.body.data(), response.body.size());
}

// Connects to the port on this host and hangs up.
void Knock(int port) {
  const int socket_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_fd < 0) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::connect(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ::close(socket_fd);
}

class Handler final : public CivetHandler {
 public:
  explicit Handler(std::function<HttpView()> view) : view_(std::move(view)) {}

  bool handleGet(CivetServer* /*server*/, mg_connection* connection) override {
    const mg_request_info* const request = mg_get_request_info(connection);
    try {
      Write(connection, Respond(request->local_uri != nullptr ? request->local_uri : "/", view_));
    } catch (const std::exception& failure) {  // prometheus-cpp may throw.
      Write(connection, {.status = 500,
                         .reason = "Internal Server Error",
                         .body = absl::StrCat(failure.what(), "\n")});
    }
    return true;
  }

 private:
  const std::function<HttpView()> view_;
};

class CivetHttpServer final : public HttpServer {
 public:
  CivetHttpServer(const std::string& listen, std::function<HttpView()> view)
      : handler_(std::move(view)),
        server_(std::vector<std::string>{"listening_ports", listen, "num_threads", "4",
                                         "request_timeout_ms", "5000", "enable_keep_alive", "no"}) {
    server_.addHandler("/", handler_);
  }
  // Handlers end before what they use.
  ~CivetHttpServer() override {
    const int own_port = port();
    std::future<void> closed = std::async(std::launch::async, [this] { server_.close(); });
    // civetweb's accepting thread notices the end only every 2 s, or when somebody connects.
    while (closed.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
      Knock(own_port);
    }
  }

  int port() const override {
    mg_server_port port{};
    return mg_get_server_ports(server_.getContext(), 1, &port) == 1 ? port.port : 0;
  }

 private:
  Handler handler_;
  CivetServer server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              std::function<HttpView()> view) {
  try {
    return std::make_unique<CivetHttpServer>(listen, std::move(view));
  } catch (const std::exception& failure) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve HTTP on ", listen, " (", failure.what(),
                     "): is the port taken, is the address of this host?"));
  }
}

}  // namespace sluice
