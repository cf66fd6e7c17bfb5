// SPDX-License-Identifier: Apache-2.0
// HttpClient: a test client that writes and reads arbitrary bytes, in plaintext or with TLS.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::net {

class HttpClient {
 public:
  // A CA and, if `name` is set, the client's NAME.pem and NAME.key in `folder`.
  struct Tls {
    std::string ca{};
    std::string cert{};
    std::string key{};
  };

  explicit HttpClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    // After this time, a read that hangs ends with the bytes received so far, and the test fails.
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  HttpClient(int port, const Tls& tls) : HttpClient(port) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_load_verify_file(context_.get(), tls.ca.c_str());
    if (!tls.cert.empty()) {
      SSL_CTX_use_certificate_chain_file(context_.get(), tls.cert.c_str());
      SSL_CTX_use_PrivateKey_file(context_.get(), tls.key.c_str(), SSL_FILETYPE_PEM);
    }
    ssl_.reset(SSL_new(context_.get()));
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), "127.0.0.1");
    SSL_set_fd(ssl_.get(), fd_);
    connected_ = connected_ && SSL_connect(ssl_.get()) == 1;
  }
  ~HttpClient() { ::close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  // Returns false if the peer accepts no more bytes.
  bool Send(absl::string_view bytes) {
    if (ssl_ != nullptr) {
      return connected_ && SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
    }
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Returns all bytes until the peer closes the connection.
  std::string Rest() {
    std::string all;
    char buffer[4096];
    while (connected_) {
      const ssize_t got = ssl_ != nullptr ? SSL_read(ssl_.get(), buffer, sizeof(buffer))
                                          : ::recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }
  std::string Get(absl::string_view path, absl::string_view headers = "Host: 127.0.0.1\r\n",
                  absl::string_view method = "GET") {
    Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\n", headers, "\r\n"));
    return Rest();
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  const int fd_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
  bool connected_ = false;
};

}  // namespace sluice::net
