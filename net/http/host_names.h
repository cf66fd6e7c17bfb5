// HostNames: the names under which an HttpServer may be asked. A page of another site can lead its
// own name to this server's address (DNS rebinding), and then read the answers through the browser
// of a user who can reach the server. The Host header shows that name.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice::net {

// The name in `host`, which may have a port after it: in lower case, an IPv6 address without its
// brackets. Empty: there is none.
std::string HostName(absl::string_view host);

class HostNames {
 public:
  // `names` beside IP addresses, localhost and this host's own name. ".example.org" stands for all
  // names that end with it.
  explicit HostNames(const std::vector<std::string>& names);

  // `name`: of HostName.
  bool Allow(absl::string_view name) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace sluice::net
