// SPDX-License-Identifier: Apache-2.0
// HttpSocket: one accepted non-blocking connection, in plaintext or with TLS. HttpTls: the TLS
// settings that all connections of a server share.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

struct HttpTlsFiles {
  // PEM files. They are read for each connection, so a changed file takes effect with the next
  // connection.
  std::string cert{};
  std::string key{};
  std::string client_ca{};  // If it is set, clients must show a certificate from this CA.
};

class HttpTls {
 public:
  explicit HttpTls(HttpTlsFiles files);

  SSL_CTX* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };

  const HttpTlsFiles files_;
  const std::unique_ptr<SSL_CTX, Free> context_;
};

class HttpSocket {
 public:
  // Takes ownership of `fd`, which must be non-blocking. `tls` may be null; otherwise it must
  // outlive the socket.
  HttpSocket(int fd, const HttpTls* tls);
  ~HttpSocket();
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;

  int fd() const { return fd_; }
  // Returns the events for which poll must wait before the next Read or Write.
  short events() const { return events_; }

  // These return the number of bytes moved, 0 if the caller must wait for events(), or -1 if the
  // connection has ended.
  ssize_t Read(char* into, size_t size);
  ssize_t Write(absl::string_view bytes);
  // Tells the peer that no more data follows.
  void EndWriting();
  // Discards up to `most` bytes that the peer still sends. Returns the same values as Read.
  ssize_t Discard(size_t most);

  // Returns whether the certificate that this side shows is valid for `name`.
  bool IsCertifiedFor(absl::string_view name) const;

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  ssize_t Outcome(int result, short plain_events);

  const int fd_;
  const std::unique_ptr<SSL, Free> ssl_;
  short events_;
};

}  // namespace sluice::net
