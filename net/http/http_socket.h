// HttpSocket: one accepted connection that never blocks, in plaintext or with TLS. HttpTls: the
// settings that all connections of a server with TLS share.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice::net {

struct HttpTlsFiles {
  // PEM files, read for each connection: those that have changed count from the next one on.
  std::string cert{};
  std::string key{};
  std::string client_ca{};  // Not empty: clients show a certificate of it.
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
  // Owns `fd`, which does not block. `tls` may be null, and outlives this.
  HttpSocket(int fd, const HttpTls* tls);
  ~HttpSocket();
  HttpSocket(const HttpSocket&) = delete;
  HttpSocket& operator=(const HttpSocket&) = delete;

  int fd() const { return fd_; }
  // The events that poll is to wait for before the next Read or Write.
  short events() const { return events_; }

  // Bytes that were moved; 0: not now, see events(); -1: the connection is over.
  ssize_t Read(char* into, size_t size);
  ssize_t Write(absl::string_view bytes);
  // Says that nothing more comes from here.
  void EndWriting();
  // Throws up to `most` bytes away that the other side still sends; 0 and -1 as Read.
  ssize_t Discard(size_t most);

  // Whether the certificate that was shown to the other side is for `name`.
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
