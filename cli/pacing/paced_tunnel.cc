// SPDX-License-Identifier: Apache-2.0
#include "cli/pacing/paced_tunnel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/string_view.h"
#include "cli/pacing/connect_request.h"

namespace sluice::cli {
namespace {

constexpr absl::string_view kConnected = "HTTP/1.1 200 Connection established\r\n\r\n";
constexpr absl::string_view kBadRequest = "HTTP/1.1 400 Bad Request\r\n\r\n";
constexpr absl::string_view kForbidden = "HTTP/1.1 403 Forbidden\r\n\r\n";
constexpr absl::string_view kBadGateway = "HTTP/1.1 502 Bad Gateway\r\n\r\n";

// Returns true for errors that mean "not now" and do not end a connection.
bool IsTransient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

PacedTunnel::~PacedTunnel() {
  ::close(client_);
  if (server_ >= 0) ::close(server_);
}

bool PacedTunnel::Advance() {
  if (done_) return false;
  if (!connected_) return dialling_ ? FinishDialling() : ReadRequest();
  bool moved = Read(client_, &up_);
  moved |= Read(server_, &down_);
  moved |= Write(server_, &up_, &client_link_->out, &server_link_->in);
  moved |= Write(client_, &down_, &server_link_->out, &client_link_->in);
  if (up_.end_passed_on && down_.end_passed_on) done_ = true;
  return moved;
}

bool PacedTunnel::ReadRequest() {
  std::array<char, 2048> buffer;
  const ssize_t got = ::recv(client_, buffer.data(), buffer.size(), 0);
  if (got <= 0) {
    if (got == 0 || !IsTransient(errno)) done_ = true;
    return false;
  }
  up_.bytes.append(buffer.data(), got);
  const absl::StatusOr<ConnectRequest> request = ParseConnectRequest(up_.bytes);
  if (!request.ok()) {
    Refuse(kBadRequest);
    return true;
  }
  if (request->head_size == 0) return true;
  up_.bytes.erase(0, request->head_size);
  return Dial(request->port);
}

bool PacedTunnel::Dial(uint16_t port) {
  server_link_ = find_link_(port);
  if (server_link_ == nullptr) {
    Refuse(kForbidden);
    return true;
  }
  server_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (server_ < 0) {
    Refuse(kBadGateway);
    return true;
  }
  const int on = 1;
  ::setsockopt(server_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(server_, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  ::setsockopt(server_, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(server_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EINPROGRESS) {
    Refuse(kBadGateway);
    return true;
  }
  dialling_ = true;
  return true;
}

bool PacedTunnel::FinishDialling() {
  pollfd fd{server_, POLLOUT, 0};
  if (::poll(&fd, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(server_, SOL_SOCKET, SO_ERROR, &error, &size);
  dialling_ = false;
  if (error != 0) {
    Refuse(kBadGateway);
    return true;
  }
  connected_ = true;
  // This answer comes from the proxy itself, so it is not paced. It always fits in the buffer of a
  // new socket.
  if (::send(client_, kConnected.data(), kConnected.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kConnected.size())) {
    done_ = true;
  }
  return true;
}

void PacedTunnel::Refuse(absl::string_view answer) {
  // Ignore a failure of this call, because the connection ends in any case.
  [[maybe_unused]] const ssize_t sent =
      ::send(client_, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  done_ = true;
}

bool PacedTunnel::Read(int fd, Pipe* pipe) {
  if (done_ || pipe->source_ended || pipe->bytes.size() >= kBufferMax) return false;
  std::array<char, kQuantum> buffer;
  const size_t room = std::min(buffer.size(), kBufferMax - pipe->bytes.size());
  const ssize_t got = ::recv(fd, buffer.data(), room, 0);
  if (got < 0) {
    // If one side resets the connection, the other side must also see a reset instead of a normal
    // end.
    if (!IsTransient(errno)) done_ = true;
    return false;
  }
  if (got == 0) {
    pipe->source_ended = true;
  } else {
    pipe->bytes.append(buffer.data(), got);
  }
  return true;
}

bool PacedTunnel::Write(int fd, Pipe* pipe, TokenBucket* first, TokenBucket* second) {
  if (done_ || pipe->end_passed_on) return false;
  if (pipe->bytes.empty()) {
    if (!pipe->source_ended) return false;
    ::shutdown(fd, SHUT_WR);
    pipe->end_passed_on = true;
    return true;
  }
  const int64_t wanted = std::min(pipe->bytes.size(), kQuantum);
  const int64_t allowed = std::min({wanted, first->available(), second->available()});
  // The pipe waits for the tokens of a whole quantum, or of all its bytes if there are fewer.
  if (allowed < wanted) return false;
  const ssize_t sent = ::send(fd, pipe->bytes.data(), allowed, MSG_NOSIGNAL);
  if (sent < 0) {
    if (!IsTransient(errno)) done_ = true;
    return false;
  }
  first->Take(sent);
  second->Take(sent);
  pipe->bytes.erase(0, sent);
  return true;
}

short PacedTunnel::Events(const Pipe& from_here, const Pipe& to_here, const TokenBucket& first,
                          const TokenBucket& second) const {
  short events = 0;
  if (!from_here.source_ended && from_here.bytes.size() < kBufferMax) events |= POLLIN;
  const int64_t wanted = std::min(to_here.bytes.size(), kQuantum);
  if (wanted > 0 && first.available() >= wanted && second.available() >= wanted) events |= POLLOUT;
  return events;
}

short PacedTunnel::ClientEvents() const {
  if (!connected_) return dialling_ ? 0 : POLLIN;
  return Events(up_, down_, server_link_->out, client_link_->in);
}

short PacedTunnel::ServerEvents() const {
  if (!connected_) return POLLOUT;
  return Events(down_, up_, client_link_->out, server_link_->in);
}

absl::Duration PacedTunnel::TimeUntilTokens() const {
  absl::Duration shortest = absl::InfiniteDuration();
  if (!connected_) return shortest;
  const auto consider = [&](const Pipe& pipe, const TokenBucket& first, const TokenBucket& second) {
    const int64_t wanted = std::min(pipe.bytes.size(), kQuantum);
    const absl::Duration wait = std::max(first.TimeUntil(wanted), second.TimeUntil(wanted));
    if (wanted > 0 && wait > absl::ZeroDuration()) shortest = std::min(shortest, wait);
  };
  consider(up_, client_link_->out, server_link_->in);
  consider(down_, server_link_->out, client_link_->in);
  return shortest;
}

}  // namespace sluice::cli
