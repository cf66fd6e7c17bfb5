// TransportOptions: which files secure a process's connections, as its flags say. All empty:
// plaintext, and no token.
#pragma once

#include <string>
#include <vector>

namespace sluice::net {

struct TransportOptions {
  std::string tls_cert;  // PEM: the process's certificate, then those between it and its CA.
  std::string tls_key;   // PEM: its private key.
  std::string tls_ca;    // PEM: whom to trust. A server then demands a certificate of its clients.
  std::string token_file;

  // As the flags of another process.
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
