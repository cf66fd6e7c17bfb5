// SPDX-License-Identifier: Apache-2.0
#include "cli/bundle/metrics_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace sluice::cli {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

absl::StatusOr<Addresses> LookUp(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("`", address, "` is not HOST:PORT"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot look up ", host, ": ", ::gai_strerror(error)));
  }
  return Addresses(found, &::freeaddrinfo);
}

// A connection whose operations all end at `deadline`.
class Connection {
 public:
  Connection(const addrinfo& to, absl::Time deadline)
      : deadline_(deadline),
        fd_(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0 || (::connect(fd_, to.ai_addr, to.ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error_ = errno;
    }
  }
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  absl::Status Connect() {
    if (error_ != 0) return absl::ErrnoToStatus(error_, "cannot connect");
    if (const absl::Status ready = Await(POLLOUT); !ready.ok()) return ready;
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot connect");
  }

  absl::Status Send(absl::string_view text) {
    while (!text.empty()) {
      if (const absl::Status ready = Await(POLLOUT); !ready.ok()) return ready;
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "cannot send the request");
      }
      if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadAll(size_t most) {
    std::string text;
    std::array<char, 16384> buffer;
    while (text.size() <= most) {
      if (const absl::Status ready = Await(POLLIN); !ready.ok()) return ready;
      const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got == 0) return text;
      if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
      if (got < 0 && errno != EAGAIN && errno != EINTR) {
        return absl::ErrnoToStatus(errno, "the answer breaks off");
      }
    }
    return absl::OutOfRangeError(absl::StrCat("the answer has more than ", most, " bytes"));
  }

 private:
  absl::Status Await(short event) {
    for (;;) {
      const absl::Duration left = deadline_ - clock_.Now();
      pollfd wait{.fd = fd_, .events = event, .revents = 0};
      const int64_t milliseconds = std::max<int64_t>(absl::ToInt64Milliseconds(left), 0);
      const int ready = ::poll(&wait, 1, static_cast<int>(milliseconds));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "cannot wait");
      if (ready == 0) return absl::DeadlineExceededError("no answer within the time limit");
    }
  }

  const SteadyClock clock_;
  const absl::Time deadline_;
  const int fd_;
  int error_ = 0;
};

absl::StatusOr<std::string> Ask(const addrinfo& to, const std::string& address, absl::Time deadline,
                                size_t most) {
  Connection connection(to, deadline);
  if (absl::Status status = connection.Connect(); !status.ok()) return status;
  // HTTP/1.0, so that no server divides its answer into chunks.
  absl::Status sent = connection.Send(
      absl::StrCat("GET /metrics HTTP/1.0\r\nHost: ", address, "\r\nConnection: close\r\n\r\n"));
  if (!sent.ok()) return sent;
  absl::StatusOr<std::string> answer = connection.ReadAll(most);
  if (!answer.ok()) return answer.status();
  return BodyOf(*answer);
}

}  // namespace

absl::StatusOr<std::string> FetchMetrics(const std::string& address, const MetricsLimits& limits) {
  const absl::StatusOr<Addresses> addresses = LookUp(address);
  if (!addresses.ok()) return addresses.status();
  const absl::Time deadline = SteadyClock().Now() + limits.time;
  absl::StatusOr<std::string> body = absl::NotFoundError("the name has no address");
  for (const addrinfo* to = addresses->get(); to != nullptr; to = to->ai_next) {
    body = Ask(*to, address, deadline, limits.bytes);
    if (body.ok()) break;
  }
  return body;
}

absl::StatusOr<std::string> BodyOf(absl::string_view answer) {
  const size_t head = answer.find("\r\n\r\n");
  if (!absl::StartsWith(answer, "HTTP/1.") || head == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "the answer is not HTTP: is this the HTTP port, and is it one without TLS?");
  }
  const absl::string_view line = answer.substr(0, answer.find("\r\n"));
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos || !absl::StartsWith(line.substr(space), " 200")) {
    return absl::UnavailableError(absl::StrCat("the answer is `", line, "`"));
  }
  return std::string(answer.substr(head + 4));
}

}  // namespace sluice::cli
