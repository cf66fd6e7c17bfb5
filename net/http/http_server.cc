// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "net/http/content_policy.h"
#include "net/http/host_names.h"
#include "net/http/http_request.h"
#include "net/http/http_socket.h"
#include "net/http/page_maker.h"
#include "net/listener.h"

namespace sluice::net {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Time = SteadyClock::time_point;

constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kLingerBytes = 64 << 10;
constexpr std::chrono::milliseconds kNoDescriptorPause{100};
constexpr std::chrono::milliseconds kStopPatience{1000};
// Number of connections accepted between two passes of reading. It is below the limit per peer, so
// that each connection is read once before a newer connection of the same peer can replace it.
constexpr int kAcceptedAtOnce = 8;

bool IsHealth(const std::string& path) {
  return path == "/livez" || path == "/readyz" || path == "/startupz";
}

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Other";
  }
}

std::string AsText(const HttpAnswer& answer, bool head) {
  return absl::StrCat("HTTP/1.1 ", answer.status, " ", ReasonOf(answer.status),
                      "\r\nContent-Type: ", answer.type, "\r\nContent-Length: ", answer.body.size(),
                      "\r\nConnection: close", answer.status == 405 ? "\r\nAllow: GET, HEAD" : "",
                      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
                      "\r\nContent-Security-Policy: ",
                      answer.policy.empty() ? kEmptyPolicy : answer.policy, "\r\n\r\n",
                      head ? "" : answer.body);
}

struct Connection {
  enum class State { kReading, kWaiting, kWriting, kLingering, kOver };

  Connection(int fd, const HttpTls* tls, std::string from, Time until)
      : socket(fd, tls), peer(std::move(from)), deadline(until) {}

  HttpSocket socket;
  const std::string peer;
  // The deadline does not apply while the connection waits for a page, because the client does not
  // cause that delay.
  Time deadline;
  State state = State::kReading;
  std::string in;
  bool head = false;
  std::string out;
  size_t moved = 0;  // Sent bytes of `out`, or discarded bytes while lingering.
};

class PollingServer final : public HttpServer {
 public:
  PollingServer(HttpOptions options, Listener listener, HttpPages pages)
      : options_(std::move(options)),
        listener_(listener),
        names_(Names(options_)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        tls_(MakeTls(options_)),
        health_(pages, [this](uint64_t id, HttpAnswer answer) { Take(id, std::move(answer)); }),
        rest_(std::move(pages),
              [this](uint64_t id, HttpAnswer answer) { Take(id, std::move(answer)); }) {
    Check(wake_ >= 0, "there is a descriptor for an HTTP port");
    thread_.emplace([this] { Run(); });
  }
  ~PollingServer() override {
    stopping_ = true;
    Wake();
    thread_.reset();  // The thread has closed the listener.
  }

  int port() const override { return listener_.port; }
  std::string url() const override {
    return absl::StrCat(options_.tls_cert.empty() ? "http://" : "https://",
                        options_.listen.substr(0, options_.listen.rfind(':')), ":", port(), "/");
  }

 private:
  // The map is ordered by age: the lowest number is the oldest connection.
  using Connections = std::map<uint64_t, Connection>;
  struct OwnDescriptor {
    explicit OwnDescriptor(int fd) : value(fd) {}
    ~OwnDescriptor() {
      if (value >= 0) ::close(value);
    }
    OwnDescriptor(const OwnDescriptor&) = delete;
    OwnDescriptor& operator=(const OwnDescriptor&) = delete;
    // The conversion is implicit, because system calls take the number.
    operator int() const { return value; }  // NOLINT(google-explicit-constructor)
    const int value;
  };

  static std::vector<std::string> Names(const HttpOptions& options) {
    std::vector<std::string> names = options.names;
    names.push_back(HostOf(options.listen));
    return names;
  }
  static std::unique_ptr<HttpTls> MakeTls(const HttpOptions& options) {
    if (options.tls_cert.empty()) return nullptr;
    return std::make_unique<HttpTls>(HttpTlsFiles{
        .cert = options.tls_cert, .key = options.tls_key, .client_ca = options.tls_client_ca});
  }

  void Wake() const { (void)::eventfd_write(wake_, 1); }
  // Accepts a finished page. Called on the threads that make pages.
  void Take(uint64_t id, HttpAnswer answer);

  void Run();
  // Runs one pass of the loop. Returns false when the server must stop.
  bool Turn();
  void Poll(Time now);
  void Serve(uint64_t id, Connection* connection);
  void Read(uint64_t id, Connection* connection);
  void Ask(uint64_t id, Connection* connection, absl::string_view text);
  void Answer(Connection* connection, const HttpAnswer& answer);
  void Write(Connection* connection);
  void Linger(Connection* connection);
  void CollectAnswers();
  void CloseLate(Time now);
  void AcceptSome(Time now);
  void MakePlaceFor(const std::string& peer);
  void BoundUntakenBytes();

  const HttpOptions options_;
  Listener listener_;
  const HostNames names_;
  const OwnDescriptor wake_;
  const std::unique_ptr<HttpTls> tls_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::vector<std::pair<uint64_t, HttpAnswer>> answers_ ABSL_GUARDED_BY(mutex_);
  // Only the loop's thread uses these members.
  Connections connections_;
  uint64_t last_id_ = 0;
  Time accept_from_{};
  std::optional<Time> stop_by_;
  std::vector<pollfd> polled_;
  std::vector<uint64_t> polled_ids_;
  // The threads of these members call Take, so they are declared after the members that Take needs.
  PageMaker health_;
  PageMaker rest_;
  std::optional<HttpThread> thread_;
};

void PollingServer::Take(uint64_t id, HttpAnswer answer) {
  {
    MutexLock lock(&mutex_);
    answers_.emplace_back(id, std::move(answer));
  }
  Wake();
}

void PollingServer::Run() {
  // OpenSSL writes without MSG_NOSIGNAL, so SIGPIPE must be blocked.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  (void)pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  while (Turn()) {
  }
  connections_.clear();
}

bool PollingServer::Turn() {
  CollectAnswers();
  const Time now = SteadyClock::now();
  if (stopping_ && !stop_by_.has_value()) {
    stop_by_ = now + kStopPatience;
    ::close(listener_.fd);
    listener_.fd = -1;
  }
  if (stop_by_.has_value()) {
    std::erase_if(connections_, [](const auto& one) {
      return one.second.state == Connection::State::kReading ||
             one.second.state == Connection::State::kLingering;
    });
    if (connections_.empty() || now >= *stop_by_) return false;
  }
  CloseLate(now);
  Poll(now);
  return true;
}

void PollingServer::Poll(Time now) {
  const bool accepts = listener_.fd >= 0 && now >= accept_from_;
  Time until = stop_by_.value_or(Time::max());
  if (listener_.fd >= 0 && !accepts) until = accept_from_;
  polled_.assign({{.fd = wake_, .events = POLLIN, .revents = 0},
                  {.fd = accepts ? listener_.fd : -1, .events = POLLIN, .revents = 0}});
  polled_ids_.assign({0, 0});
  for (const auto& [id, connection] : connections_) {
    if (connection.state == Connection::State::kWaiting) continue;
    until = std::min(until, connection.deadline);
    polled_.push_back(
        {.fd = connection.socket.fd(), .events = connection.socket.events(), .revents = 0});
    polled_ids_.push_back(id);
  }
  int timeout = -1;
  if (until != Time::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }
  if (::poll(polled_.data(), polled_.size(), timeout) <= 0) return;
  for (size_t i = 2; i < polled_.size(); ++i) {
    if (polled_[i].revents == 0) continue;
    const auto found = connections_.find(polled_ids_[i]);
    Serve(found->first, &found->second);
    if (found->second.state == Connection::State::kOver) connections_.erase(found);
  }
  eventfd_t count = 0;
  if (polled_[0].revents != 0) (void)::eventfd_read(wake_, &count);
  if (polled_[1].revents != 0) AcceptSome(SteadyClock::now());
}

void PollingServer::Serve(uint64_t id, Connection* connection) {
  switch (connection->state) {
    case Connection::State::kReading:
      return Read(id, connection);
    case Connection::State::kWriting:
      return Write(connection);
    case Connection::State::kLingering:
      return Linger(connection);
    case Connection::State::kWaiting:
    case Connection::State::kOver:
      return;
  }
}

void PollingServer::Read(uint64_t id, Connection* connection) {
  std::string& in = connection->in;
  while (in.size() < kRequestBytesMax) {
    const size_t seen = in.size();
    in.resize(kRequestBytesMax);
    const ssize_t got = connection->socket.Read(in.data() + seen, in.size() - seen);
    in.resize(seen + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0) connection->state = Connection::State::kOver;
    if (got <= 0) return;
    if (const std::optional<size_t> size = RequestSize(in, seen)) {
      return Ask(id, connection, absl::string_view(in).substr(0, *size));
    }
  }
  Answer(connection, {.status = 431,
                      .body = absl::StrCat("request line and headers have more than ",
                                           kRequestBytesMax, " bytes\n")});
}

void PollingServer::Ask(uint64_t id, Connection* connection, absl::string_view text) {
  auto parsed = ParseRequest(text);
  if (const HttpAnswer* const refusal = std::get_if<HttpAnswer>(&parsed)) {
    return Answer(connection, *refusal);
  }
  HttpRequest& request = std::get<HttpRequest>(parsed);
  connection->head = request.head;
  const bool health = IsHealth(request.path);
  // Health probes may use any host name, and their answers are not secret.
  if (!health && request.host.has_value()) {
    const std::string name = HostName(*request.host);
    if (!names_.Allow(name) && !(tls_ != nullptr && connection->socket.IsCertifiedFor(name))) {
      return Answer(connection,
                    {.status = 421,
                     .body = "the Host header names another server. Ask for this one's IP address "
                             "or host name, or start it with --http-host NAME (a worker: "
                             "--http-host NAME)\n"});
    }
  }
  connection->state = Connection::State::kWaiting;
  (health ? health_ : rest_).Ask(id, std::move(request.path));
}

void PollingServer::Answer(Connection* connection, const HttpAnswer& answer) {
  connection->out = AsText(answer, connection->head);
  connection->moved = 0;
  connection->in = std::string();
  connection->state = Connection::State::kWriting;
  connection->deadline = SteadyClock::now() + options_.patience;
  Write(connection);
}

void PollingServer::Write(Connection* connection) {
  while (connection->moved < connection->out.size()) {
    const absl::string_view rest = absl::string_view(connection->out).substr(connection->moved);
    const ssize_t sent = connection->socket.Write(rest);
    if (sent < 0) connection->state = Connection::State::kOver;
    if (sent <= 0) return;
    connection->moved += static_cast<size_t>(sent);
  }
  // Closing the socket now would reset a connection that still has data in flight, and the client
  // could lose the answer.
  connection->socket.EndWriting();
  connection->out = std::string();
  connection->moved = 0;
  connection->state = Connection::State::kLingering;
  connection->deadline = SteadyClock::now() + kLinger;
}

void PollingServer::Linger(Connection* connection) {
  while (connection->moved < kLingerBytes) {
    const ssize_t got = connection->socket.Discard(kLingerBytes - connection->moved);
    if (got == 0) return;
    if (got < 0) break;
    connection->moved += static_cast<size_t>(got);
  }
  connection->state = Connection::State::kOver;
}

void PollingServer::CollectAnswers() {
  std::vector<std::pair<uint64_t, HttpAnswer>> answers;
  {
    MutexLock lock(&mutex_);
    answers.swap(answers_);
  }
  for (const auto& [id, answer] : answers) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Answer(&found->second, answer);
    if (found->second.state == Connection::State::kOver) connections_.erase(found);
    BoundUntakenBytes();
  }
}

void PollingServer::CloseLate(Time now) {
  std::erase_if(connections_, [&](const auto& one) {
    return one.second.state != Connection::State::kWaiting && now >= one.second.deadline;
  });
}

void PollingServer::AcceptSome(Time now) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Accepted accepted = Accept(listener_.fd);
    if (accepted.error != 0) accept_from_ = now + kNoDescriptorPause;
    if (accepted.fd < 0) return;
    MakePlaceFor(accepted.peer);
    connections_.try_emplace(++last_id_, accepted.fd, tls_.get(), std::move(accepted.peer),
                             now + options_.patience);
  }
}

// Makes space for a connection from `peer`: at the peer's limit, closes the peer's oldest
// connection, and at the total limit, the oldest of all. The oldest connection has had the most
// time, so clients with fast requests are served even if there are many slow ones.
void PollingServer::MakePlaceFor(const std::string& peer) {
  const auto is_same = [&](const auto& one) { return one.second.peer == peer; };
  const auto of_peer = std::count_if(connections_.begin(), connections_.end(), is_same);
  const bool peer_full = static_cast<size_t>(of_peer) >= options_.connections_per_peer_max;
  if (!peer_full && connections_.size() < options_.connections_max) return;
  const auto oldest = peer_full ? std::find_if(connections_.begin(), connections_.end(), is_same)
                                : connections_.begin();
  health_.Forget(oldest->first);
  rest_.Forget(oldest->first);
  connections_.erase(oldest);
}

void PollingServer::BoundUntakenBytes() {
  size_t bytes = 0;
  for (const auto& [id, connection] : connections_) bytes += connection.out.size();
  for (auto it = connections_.begin();
       it != connections_.end() && bytes > options_.untaken_bytes_max;) {
    bytes -= it->second.out.size();
    it = it->second.out.empty() ? std::next(it) : connections_.erase(it);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options,
                                                              HttpPages pages) {
  const absl::StatusOr<Listener> listener = Listen(options.listen);
  if (!listener.ok()) return listener.status();
  return std::make_unique<PollingServer>(std::move(options), *listener, std::move(pages));
}

}  // namespace sluice::net
