// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/port_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace sluice::net {
namespace {

constexpr absl::Duration kLookAtStop = absl::Milliseconds(50);
// A client's first bytes in HTTP/2: the preface, and a SETTINGS frame without settings.
constexpr absl::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

struct FreeFoundAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};

class OwnedSocket {
 public:
  explicit OwnedSocket(int fd) : fd_(fd) {}
  ~OwnedSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// Returns a valid ClientHello, because gRPC logs an error for other bytes. Returns an empty string
// if OpenSSL fails.
std::string TlsHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  if (context == nullptr) return "";
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (ssl == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return "";
  }
  SSL_set_bio(ssl.get(), in, out);  // This takes ownership of `in` and `out`.
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  (void)SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
  SSL_set_connect_state(ssl.get());
  // The handshake stops here because it needs the server's answer.
  (void)SSL_do_handshake(ssl.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out, &bytes);
  return {bytes, static_cast<size_t>(std::max(size, 0L))};
}

absl::Status Failed(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Returns OK when the socket is ready for `events` or has an error to report.
absl::Status AwaitSocket(int fd, short events, absl::Time until, const std::atomic<bool>& stop,
                         const char* late) {
  const SteadyClock clock;
  for (;;) {
    if (stop) return absl::CancelledError("stopped");
    const absl::Duration left = until - clock.Now();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError(late);
    pollfd polled{.fd = fd, .events = events, .revents = 0};
    const int64_t ms = absl::ToInt64Milliseconds(std::min(left, kLookAtStop)) + 1;
    if (::poll(&polled, 1, static_cast<int>(ms)) > 0) return absl::OkStatus();
  }
}

}  // namespace

PortProbe::PortProbe(absl::string_view listen, int port, bool tls)
    : name_(absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port)),
      greeting_(tls ? TlsHello() : std::string(kPreface)) {
  absl::string_view host = listen.substr(0, listen.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const auto add = [&](const char* name) {
    addrinfo* found = nullptr;
    if (::getaddrinfo(name, absl::StrCat(port).c_str(), &hints, &found) != 0) return;
    const std::unique_ptr<addrinfo, FreeFoundAddresses> owned(found);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      Address& address = addresses_.emplace_back();
      std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
      address.size = one->ai_addrlen;
    }
  };
  if (host == "0.0.0.0" || host == "::") {  // The port listens on all addresses.
    if (host == "::") add("::1");
    add("127.0.0.1");
  } else {
    add(std::string(host).c_str());
  }
}

absl::Status PortProbe::Ask(absl::Duration patience, const std::atomic<bool>& stop) const {
  if (addresses_.empty() || greeting_.empty()) {
    return absl::ResourceExhaustedError(
        "it cannot be probed: its address or a TLS greeting is missing");
  }
  const absl::Time until = SteadyClock().Now() + patience;
  absl::Status status;
  for (const Address& address : addresses_) {
    status = AskAt(address, until, stop);
    // gRPC may listen on only some of a name's addresses, so the probe tries the next one.
    if (!absl::IsUnavailable(status)) break;
  }
  return status;
}

absl::Status PortProbe::AskAt(const Address& address, absl::Time until,
                              const std::atomic<bool>& stop) const {
  const OwnedSocket socket(
      ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) {
    const absl::Status failed = Failed("cannot make a socket", errno);
    const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    return lacks ? absl::ResourceExhaustedError(failed.message()) : failed;
  }
  const auto* const name = reinterpret_cast<const sockaddr*>(&address.bytes);
  if (::connect(socket.fd(), name, address.size) != 0 && errno != EINPROGRESS) {
    return Failed("refused the connection", errno);
  }
  absl::Status status = AwaitSocket(socket.fd(), POLLOUT, until, stop, "takes no connection");
  if (!status.ok()) return status;
  int error = 0;
  socklen_t size = sizeof(error);
  (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Failed("refused the connection", error);
  // A port that closes the connection immediately counts as answering: it may have reached its
  // connection limit.
  if (::send(socket.fd(), greeting_.data(), greeting_.size(), MSG_NOSIGNAL) < 0) {
    return absl::OkStatus();
  }
  return AwaitSocket(socket.fd(), POLLIN, until, stop, "accepts connections but does not answer");
}

}  // namespace sluice::net
