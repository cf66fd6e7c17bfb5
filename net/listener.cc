// SPDX-License-Identifier: Apache-2.0
#include "net/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::net {
namespace {

constexpr int kTriesForAFreePort = 10;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

struct HostAndPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostAndPort> Parse(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", listen, "\" is not HOST:PORT, such as 127.0.0.1:7071"));
  }
  return HostAndPort{HostOf(listen), port};
}

absl::Status CannotListen(absl::string_view listen, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": ", why));
}

absl::Status CannotListen(absl::string_view listen, int error) {
  return CannotListen(
      listen, absl::StrCat(std::strerror(error),
                           "; check that the port is free and the address belongs to this host"));
}

absl::StatusOr<Addresses> Resolve(const std::string& listen, const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  Addresses addresses(found);
  if (failed != 0) return CannotListen(listen, gai_strerror(failed));
  return addresses;
}

uint16_t* PortIn(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(*PortIn(reinterpret_cast<sockaddr*>(&address)));
}

// Returns a listening socket, or -1 with errno set.
int ListenAt(const addrinfo& at, int port) {
  const int fd =
      ::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol);
  if (fd < 0) return -1;
  // SO_REUSEPORT is not set, because it would let two servers share a port.
  const int yes = 1;
  const int no = 0;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (at.ai_family == AF_INET6) {  // Lets [::] accept IPv4.
    (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  *PortIn(at.ai_addr) = htons(static_cast<uint16_t>(port));
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

bool IsOfAnotherMachine(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
}

// Returns true if an earlier entry has the same address; /etc/hosts may name an address twice.
bool IsRepeated(const addrinfo* at, const addrinfo* first) {
  for (; first != at; first = first->ai_next) {
    if (first->ai_addrlen == at->ai_addrlen &&
        std::memcmp(first->ai_addr, at->ai_addr, at->ai_addrlen) == 0) {
      return true;
    }
  }
  return false;
}

// Listens on each address. Returns the error of the address that failed, or 0.
int ListenAtEach(const addrinfo* addresses, int port, std::vector<Listener>* listeners) {
  int absent = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) *PortIn(at->ai_addr) = 0;
  std::vector<const addrinfo*> distinct;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    if (!IsRepeated(at, addresses)) distinct.push_back(at);
  }
  for (const addrinfo* const at : distinct) {
    const int fd = ListenAt(*at, port);
    if (fd < 0 && IsOfAnotherMachine(errno)) {
      absent = errno;
      continue;
    }
    if (fd < 0) return errno;
    listeners->push_back({.fd = fd, .port = PortOf(fd)});
    port = listeners->back().port;
  }
  return listeners->empty() ? absent : 0;
}

// Fills in the address and the peer. IPv4-mapped IPv6 addresses appear as IPv4.
void Describe(const sockaddr_storage& from, Accepted* accepted) {
  const auto bytes = [](const void* data, size_t size) {
    return std::string(static_cast<const char*>(data), size);
  };
  char text[INET6_ADDRSTRLEN] = {};
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(&from)->sin6_addr;
  const bool mapped = from.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six);
  const int port =
      ntohs(*PortIn(reinterpret_cast<sockaddr*>(const_cast<sockaddr_storage*>(&from))));
  if (from.ss_family == AF_INET6 && !mapped) {
    (void)::inet_ntop(AF_INET6, &six, text, sizeof(text));
    accepted->peer = bytes(six.s6_addr, 8);  // A 64-bit network usually belongs to one party.
    accepted->address = absl::StrCat("[", text, "]:", port);
    return;
  }
  const void* const four = mapped ? static_cast<const void*>(six.s6_addr + 12)
                                  : &reinterpret_cast<const sockaddr_in*>(&from)->sin_addr;
  (void)::inet_ntop(AF_INET, four, text, sizeof(text));
  accepted->peer = bytes(four, 4);
  accepted->address = absl::StrCat(text, ":", port);
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
  const absl::StatusOr<HostAndPort> parsed = Parse(listen);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<Addresses> addresses = Resolve(listen, parsed->host);
  if (!addresses.ok()) return addresses.status();
  int error = 0;
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    const int fd = ListenAt(*at, parsed->port);
    if (fd >= 0) return Listener{.fd = fd, .port = PortOf(fd)};
    error = errno;
  }
  return CannotListen(listen, error);
}

absl::StatusOr<std::vector<Listener>> ListenOnAll(const std::string& listen) {
  const absl::StatusOr<HostAndPort> parsed = Parse(listen);
  if (!parsed.ok()) return parsed.status();
  std::vector<std::string> hosts = {parsed->host};
  // If the machine has IPv6, [::] covers both address types.
  if (parsed->host == "0.0.0.0") hosts = {"::", parsed->host};
  if (parsed->host == "::") hosts = {parsed->host, "0.0.0.0"};
  absl::Status failed;
  for (const std::string& host : hosts) {
    const absl::StatusOr<Addresses> addresses = Resolve(listen, host);
    if (!addresses.ok()) {
      failed = addresses.status();
      continue;
    }
    // A port that is free at one address may be in use at another, so the search for a free port
    // may need several tries.
    const int tries = parsed->port == 0 ? kTriesForAFreePort : 1;
    int error = 0;
    for (int i = 0; i < tries; ++i) {
      std::vector<Listener> listeners;
      error = ListenAtEach(addresses->get(), parsed->port, &listeners);
      if (error == 0) return listeners;
      CloseAll(&listeners);
      if (error != EADDRINUSE) break;
    }
    failed = CannotListen(listen, error);
    if (!IsOfAnotherMachine(error)) break;
  }
  return failed;
}

void CloseAll(std::vector<Listener>* listeners) {
  for (const Listener& listener : *listeners) ::close(listener.fd);
  listeners->clear();
}

Accepted Accept(int listener) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    Accepted accepted;
    accepted.fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size,
                            SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted.fd >= 0) {
      Describe(from, &accepted);
      return accepted;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) accepted.error = errno;
    return accepted;
  }
}

bool LacksDescriptors(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace sluice::net
