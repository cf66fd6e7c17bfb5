#include "http/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int kBacklog = 128;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};

int ListenAt(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                          address.ai_protocol);
  if (fd < 0) return -1;
  // Without SO_REUSEPORT, by which two servers would share a port.
  const int yes = 1;
  const int no = 0;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address.ai_family == AF_INET6) {  // [::] takes IPv4, too.
    (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string PeerOf(const sockaddr_storage& address) {
  const auto bytes = [](const void* data, size_t size) {
    return std::string(static_cast<const char*>(data), size);
  };
  if (address.ss_family != AF_INET6) {
    return bytes(&reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, 4);
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ip)) return bytes(ip.s6_addr + 12, 4);
  return bytes(ip.s6_addr, 8);  // A network of 64 bits belongs to one party.
}

}  // namespace

std::string HostOf(absl::string_view listen) {
  absl::string_view host = listen.substr(0, listen.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return std::string(host);
}

absl::StatusOr<Listener> Listen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", listen, "\" is not HOST:PORT, such as 127.0.0.1:7071"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(HostOf(listen).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  if (failed != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve HTTP on ", listen, ": ", gai_strerror(failed)));
  }
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const int fd = ListenAt(*address);
    if (fd >= 0) return Listener{.fd = fd, .port = PortOf(fd)};
    error = errno;
  }
  return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", listen, ": ",
                                             std::strerror(error),
                                             "; is the port taken, is the address of this host?"));
}

Accepted Accept(int listener) {
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return {.fd = fd, .peer = PeerOf(address)};
    if (errno == EINTR || errno == ECONNABORTED) continue;
    const bool none = errno == EAGAIN || errno == EWOULDBLOCK;
    return {.exhausted = !none};
  }
}

}  // namespace sluice
