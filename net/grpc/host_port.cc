// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/host_port.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sluice::net {

bool IsLoopback(absl::string_view host_port) {
  const absl::string_view host = host_port.substr(0, host_port.rfind(':'));
  in_addr address{};
  return host == "localhost" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1);
}

std::string AddressOfPeer(absl::string_view peer) {
  const bool six = absl::ConsumePrefix(&peer, "ipv6:");
  if (!six && !absl::ConsumePrefix(&peer, "ipv4:")) return "";
  if (!six) return std::string(peer);
  std::string address =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%5b", "["}, {"%5d", "]"}});
  // Removes the interface of a link-local address such as [fe80::1%25eth0].
  const size_t scope = address.find('%');
  const size_t end = address.rfind(']');
  if (scope != std::string::npos && end != std::string::npos && scope < end) {
    address.erase(scope, end - scope);
  }
  return address;
}

}  // namespace sluice::net
