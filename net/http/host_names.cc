// SPDX-License-Identifier: Apache-2.0
#include "net/http/host_names.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace sluice::net {
namespace {

bool IsAddress(const std::string& name) {
  in6_addr parsed{};  // in6_addr is large enough for both address types.
  return inet_pton(AF_INET, name.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &parsed) == 1;
}

std::string OwnName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return absl::AsciiStrToLower(name.data());
}

}  // namespace

std::string HostName(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) return std::string(host.substr(0, host.find(']')));
  host = host.substr(0, host.find(':'));
  absl::ConsumeSuffix(&host, ".");
  return absl::AsciiStrToLower(host);
}

HostNames::HostNames(const std::vector<std::string>& names) : names_({"localhost", OwnName()}) {
  for (const std::string& name : names) names_.push_back(absl::AsciiStrToLower(name));
}

bool HostNames::Allow(absl::string_view name) const {
  if (name.empty()) return false;
  return IsAddress(std::string(name)) ||
         std::any_of(names_.begin(), names_.end(), [&](const std::string& allowed) {
           return name == allowed ||
                  (absl::StartsWith(allowed, ".") && absl::EndsWith(name, allowed));
         });
}

}  // namespace sluice::net
