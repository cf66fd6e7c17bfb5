// SPDX-License-Identifier: Apache-2.0
#include "net/http/http_socket.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace sluice::net {
namespace {

int UseFiles(SSL* ssl, void* argument) {
  const auto* const files = static_cast<const HttpTlsFiles*>(argument);
  if (SSL_use_certificate_chain_file(ssl, files->cert.c_str()) != 1 ||
      SSL_use_PrivateKey_file(ssl, files->key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return 0;
  }
  if (files->client_ca.empty()) return 1;
  X509_STORE* const store = X509_STORE_new();
  if (store == nullptr || X509_STORE_load_file(store, files->client_ca.c_str()) != 1 ||
      SSL_set0_verify_cert_store(ssl, store) != 1) {
    X509_STORE_free(store);
    return 0;
  }
  SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return 1;
}

SSL* MakeSsl(int fd, const HttpTls* tls) {
  if (tls == nullptr) return nullptr;
  SSL* const ssl = SSL_new(tls->context());
  Check(ssl != nullptr && SSL_set_fd(ssl, fd) == 1, "OpenSSL takes a connection");
  SSL_set_accept_state(ssl);
  return ssl;
}

}  // namespace

HttpTls::HttpTls(HttpTlsFiles files)
    : files_(std::move(files)), context_(SSL_CTX_new(TLS_server_method())) {
  SSL_CTX* const context = context_.get();
  Check(context != nullptr, "OpenSSL makes a context");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // Renegotiation and tickets are off, because a resumed session would keep the previous
  // certificate.
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_cert_cb(context, &UseFiles, const_cast<HttpTlsFiles*>(&files_));
}

HttpSocket::HttpSocket(int fd, const HttpTls* tls)
    : fd_(fd), ssl_(MakeSsl(fd, tls)), events_(POLLIN) {}

HttpSocket::~HttpSocket() { ::close(fd_); }

ssize_t HttpSocket::Outcome(int result, short plain_events) {
  events_ = plain_events;
  if (result > 0) return result;
  if (ssl_ == nullptr) {
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
  }
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      events_ = POLLIN;
      return 0;
    case SSL_ERROR_WANT_WRITE:
      events_ = POLLOUT;
      return 0;
    default:
      return -1;
  }
}

ssize_t HttpSocket::Read(char* into, size_t size) {
  if (ssl_ == nullptr) {
    return Outcome(static_cast<int>(::recv(fd_, into, size, 0)), POLLIN);
  }
  ERR_clear_error();  // SSL_get_error would see an old error of another connection.
  return Outcome(SSL_read(ssl_.get(), into, static_cast<int>(size)), POLLIN);
}

ssize_t HttpSocket::Write(absl::string_view bytes) {
  constexpr size_t kPiece = 1 << 20;  // OpenSSL takes the size as an int.
  bytes = bytes.substr(0, kPiece);
  if (ssl_ == nullptr) {
    return Outcome(static_cast<int>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)),
                   POLLOUT);
  }
  ERR_clear_error();
  return Outcome(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())), POLLOUT);
}

void HttpSocket::EndWriting() {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
  }
  (void)::shutdown(fd_, SHUT_WR);
  events_ = POLLIN;
}

ssize_t HttpSocket::Discard(size_t most) {
  std::array<char, 4096> waste;
  const ssize_t got = ::recv(fd_, waste.data(), std::min(most, waste.size()), 0);
  if (got > 0) return got;
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

bool HttpSocket::IsCertifiedFor(absl::string_view name) const {
  if (ssl_ == nullptr) return false;
  X509* const certificate = SSL_get_certificate(ssl_.get());
  return certificate != nullptr &&
         X509_check_host(certificate, name.data(), name.size(), 0, nullptr) == 1;
}

}  // namespace sluice::net
