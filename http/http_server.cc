#include "http/http_server.h"

#include <httplib.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kThreads = 4;
constexpr std::chrono::seconds kPatience{5};  // With a client that is slow to ask or to read.
constexpr size_t kRequestBytesMax = 64 << 10;

// The page is one file, and asks this server alone.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Of the moment: files that have changed count from the next connection on.
int UseFiles(SSL* ssl, void* argument) {
  const auto* const options = static_cast<const HttpOptions*>(argument);
  return SSL_use_certificate_chain_file(ssl, options->tls_cert.c_str()) == 1 &&
         SSL_use_PrivateKey_file(ssl, options->tls_key.c_str(), SSL_FILETYPE_PEM) == 1;
}

class HttplibServer final : public HttpServer {
 public:
  HttplibServer(HttpOptions options, HttpPages pages)
      : options_(std::move(options)), pages_(std::move(pages)), server_(Make()) {
    server_->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_->set_keep_alive_max_count(1);
    server_->set_read_timeout(kPatience);
    server_->set_write_timeout(kPatience);
    server_->set_payload_max_length(kRequestBytesMax);
    // Without SO_REUSEPORT, by which two servers would share a port.
    server_->set_socket_options([](socket_t socket) {
      const int yes = 1;
      (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_->set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          Respond(request, &response);
          return httplib::Server::HandlerResponse::Handled;
        });
  }
  ~HttplibServer() override {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen();
  int port() const override { return port_; }
  std::string url() const override {
    const std::string host = options_.listen.substr(0, options_.listen.rfind(':'));
    return absl::StrCat(options_.tls_cert.empty() ? "http://" : "https://", host, ":", port_, "/");
  }

 private:
  std::unique_ptr<httplib::Server> Make() {
    if (options_.tls_cert.empty()) return std::make_unique<httplib::Server>();
    return std::make_unique<httplib::SSLServer>([this](SSL_CTX& context) {
      SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
      SSL_CTX_set_cert_cb(&context, &UseFiles, &options_);
      return true;
    });
  }
  void Respond(const httplib::Request& request, httplib::Response* response) const;

  HttpOptions options_;
  const HttpPages pages_;
  const std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  std::thread thread_;
};

void HttplibServer::Respond(const httplib::Request& request, httplib::Response* response) const {
  HttpAnswer answer;
  if (request.method != "GET" && request.method != "HEAD") {
    answer = {.status = 405, .body = "this server is only to be read\n"};
  } else {
    try {
      answer = pages_(request.path);
    } catch (const std::exception& failure) {  // Libraries behind pages may throw.
      answer = {.status = 500, .body = absl::StrCat(failure.what(), "\n")};
    }
  }
  response->status = answer.status;
  response->set_content(answer.body, answer.type);
  response->set_header("Cache-Control", "no-store");
  response->set_header("X-Content-Type-Options", "nosniff");
  response->set_header("Content-Security-Policy", kPolicy);
}

absl::Status HttplibServer::Listen() {
  const std::string& listen = options_.listen;
  const size_t colon = listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", listen, "\" is not HOST:PORT, such as 127.0.0.1:7071"));
  }
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (port == 0) {
    port = server_->bind_to_any_port(host);
  } else if (!server_->bind_to_port(host, port)) {
    port = -1;
  }
  if (port <= 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve HTTP on ", listen, ": is the port taken, is the address of this host?"));
  }
  port_ = port;
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  // Else `stop` could come before there is anything to stop.
  while (!server_->is_running()) std::this_thread::yield();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options,
                                                              HttpPages pages) {
  auto server = std::make_unique<HttplibServer>(std::move(options), std::move(pages));
  const absl::Status listening = server->Listen();
  if (!listening.ok()) return listening;
  return server;
}

}  // namespace sluice
