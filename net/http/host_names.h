// SPDX-License-Identifier: Apache-2.0
// HostNames: the names under which clients may contact an HttpServer. The check prevents DNS
// rebinding: another site points its own name at this server's address, and its page reads the
// answers through the browser of a user who can reach the server. The Host header reveals the name
// of that site.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::net {

// Returns the name in `host` in lower case, without the port. The brackets of an IPv6 address are
// removed. Returns an empty string if there is no name.
std::string HostName(absl::string_view host);

class HostNames {
 public:
  // `names` are allowed in addition to IP addresses, localhost and this host's own name. The name
  // ".example.org" allows every name that ends with it.
  explicit HostNames(const std::vector<std::string>& names);

  // Returns whether the name is allowed. `name` must be a result of HostName.
  bool Allow(absl::string_view name) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace sluice::net
