// SPDX-License-Identifier: Apache-2.0
#include "cli/pacing/link_pacer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/launch/quantity.h"

namespace sluice::cli {
namespace {

// An idle link may send a burst that takes this long at the link's rate. The burst covers the
// sleeps between quanta, but is short compared with a step.
constexpr double kBurstSeconds = 0.004;
// Must be at least twice a tunnel's quantum. Otherwise no quantum could pass.
constexpr double kBurstBytesMin = 32 << 10;

struct Listener {
  int fd;
  uint16_t port;
};

absl::StatusOr<Listener> ListenOnLoopback() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "link pacer: no socket");
  // Accepted sockets inherit these buffer sizes.
  constexpr int kSocketBuffer = PacedTunnel::kSocketBuffer;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  sockaddr* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, size) != 0 || ::listen(fd, 128) != 0 ||
      ::getsockname(fd, generic, &size) != 0) {
    const int error = errno;
    ::close(fd);
    return absl::ErrnoToStatus(error, "link pacer: cannot listen on 127.0.0.1");
  }
  return Listener{fd, ntohs(address.sin_port)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkPacer>> LinkPacer::Start(double bits_per_second,
                                                            absl::Span<const uint16_t> listens_on,
                                                            const Clock* clock) {
  if (!(bits_per_second >= kLowestBitRate)) {
    return absl::InvalidArgumentError(
        absl::StrCat("link pacer: ", bits_per_second, " bit/s is below ", kLowestBitRate));
  }
  const double rate = bits_per_second / 8;
  const double burst = std::max(rate * kBurstSeconds, kBurstBytesMin);
  std::unique_ptr<LinkPacer> pacer(new LinkPacer(clock));
  for (const uint16_t port : listens_on) {
    absl::StatusOr<Listener> listener = ListenOnLoopback();
    if (!listener.ok()) return listener.status();
    const TokenBucket bucket(rate, burst, clock->Now());
    pacer->processes_.push_back({port, listener->fd, listener->port, {bucket, bucket}});
  }
  pacer->stop_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (pacer->stop_event_ < 0) return absl::ErrnoToStatus(errno, "link pacer: no eventfd");
  pacer->thread_ = std::thread([pointer = pacer.get()] { pointer->Loop(); });
  return pacer;
}

LinkPacer::~LinkPacer() {
  stopping_ = true;
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_event_, &one, sizeof(one));
    thread_.join();
  }
  if (stop_event_ >= 0) ::close(stop_event_);
  for (const Process& process : processes_) ::close(process.listener);
}

PacedLink* LinkPacer::FindLink(uint16_t port) {
  for (Process& process : processes_) {
    if (process.listens_on == port) return &process.link;
  }
  return nullptr;
}

void LinkPacer::Accept(Process* process) {
  while (true) {
    const int fd = ::accept4(process->listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (tunnels_.size() >= kTunnelsMax) {
      ::close(fd);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    tunnels_.push_back(std::make_unique<PacedTunnel>(
        fd, &process->link, [this](uint16_t port) { return FindLink(port); }));
  }
}

void LinkPacer::Loop() {
  while (!stopping_) {
    Poll();
    const absl::Time now = clock_->Now();
    for (Process& process : processes_) {
      process.link.out.Refill(now);
      process.link.in.Refill(now);
      Accept(&process);
    }
    // Each tunnel moves one quantum per turn, so that all tunnels share their links fairly.
    bool moved = !tunnels_.empty();
    while (moved) {
      moved = false;
      for (size_t i = 0; i < tunnels_.size(); ++i) {
        moved |= tunnels_[(first_ + i) % tunnels_.size()]->Advance();
      }
      ++first_;
      std::erase_if(tunnels_, [](const auto& tunnel) { return tunnel->done(); });
      if (stopping_) return;
    }
  }
}

void LinkPacer::Poll() {
  std::vector<pollfd> fds = {{stop_event_, POLLIN, 0}};
  for (const Process& process : processes_) fds.push_back({process.listener, POLLIN, 0});
  absl::Duration sleep = absl::InfiniteDuration();
  for (const std::unique_ptr<PacedTunnel>& tunnel : tunnels_) {
    sleep = std::min(sleep, tunnel->TimeUntilTokens());
    // Omit a socket without requested events, because poll would keep reporting its hang-up.
    if (const short events = tunnel->ClientEvents(); events != 0) {
      fds.push_back({tunnel->client_fd(), events, 0});
    }
    if (const short events = tunnel->ServerEvents(); tunnel->server_fd() >= 0 && events != 0) {
      fds.push_back({tunnel->server_fd(), events, 0});
    }
  }
  const timespec timeout = absl::ToTimespec(sleep);
  ::ppoll(fds.data(), fds.size(), sleep == absl::InfiniteDuration() ? nullptr : &timeout, nullptr);
}

}  // namespace sluice::cli
