#include "net/grpc/host_port.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"

namespace sluice::net {

bool IsLoopback(absl::string_view host_port) {
  const absl::string_view host = host_port.substr(0, host_port.rfind(':'));
  in_addr address{};
  return host == "localhost" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1);
}

}  // namespace sluice::net
