// SPDX-License-Identifier: Apache-2.0
#include "net/grpc/role.h"

#include <vector>

#include "absl/strings/str_join.h"

namespace sluice::net {

std::string ToString(Roles roles) {
  std::vector<absl::string_view> names;
  for (const auto& entry : NamesOf(Role{})) {
    if (roles.Has(entry.value)) names.push_back(entry.name);
  }
  return absl::StrJoin(names, " or ");
}

std::optional<Method> FindMethod(absl::string_view path) {
  for (const MethodTraits& row : kMethods) {
    if (row.path == path) return row.method;
  }
  return std::nullopt;
}

}  // namespace sluice::net
