// SPDX-License-Identifier: Apache-2.0
// TransportOptions: the files that secure a process's connections, named by flags, and its proxy.
// If all paths are empty, connections are in plaintext without a token.
#pragma once

#include <string>
#include <vector>

namespace sluice::net {

struct TransportOptions {
  std::string tls_cert;  // PEM: the process's certificate, then the intermediate ones.
  std::string tls_key;   // PEM: the private key of the certificate.
  std::string tls_ca;    // PEM: the trusted CAs. A server with CAs requires client certificates.
  std::string token_file;
  // Only on servers: the roles of the clients (role_file.h). Empty: every client has all roles.
  std::string role_file{};
  // URL of the proxy for connections that last: the value of $grpc_proxy, which main reads. Empty:
  // no proxy. gRPC itself reads $no_grpc_proxy, or else $no_proxy.
  std::string grpc_proxy{};

  // Returns the options as command-line flags for another process.
  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments;
    const auto add = [&](const char* flag, const std::string& file) {
      if (!file.empty()) arguments.insert(arguments.end(), {flag, file});
    };
    add("--tls-cert", tls_cert);
    add("--tls-key", tls_key);
    add("--tls-ca", tls_ca);
    add("--token-file", token_file);
    return arguments;
  }
  bool tls() const { return !tls_cert.empty() || !tls_key.empty() || !tls_ca.empty(); }
};

}  // namespace sluice::net
