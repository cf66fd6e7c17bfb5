// SPDX-License-Identifier: Apache-2.0
// The names of an enumeration's values. NamesOf(Enum), declared next to the enumeration, returns
// its table, which is the only list of the names:
//
//   enum class Membership : uint8_t { kFixed, kElastic };
//   constexpr auto NamesOf(Membership) {
//     return std::to_array<EnumName<Membership>>({{Membership::kFixed, "fixed"},
//                                                 {Membership::kElastic, "elastic"}});
//   }
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

template <typename Enum>
struct EnumName {
  Enum value;
  absl::string_view name;
};

// Returns the name of a value, or an empty string if the table does not have it.
template <typename Enum>
constexpr absl::string_view NameOf(Enum value) {
  for (const auto& entry : NamesOf(Enum{})) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

// Returns the value with this name. No value means that the table does not have the name.
template <typename Enum>
constexpr std::optional<Enum> FindByName(absl::string_view name) {
  for (const auto& entry : NamesOf(Enum{})) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

// Returns all names, in the order of the table.
template <typename Enum>
std::vector<absl::string_view> AllNames() {
  std::vector<absl::string_view> names;
  for (const auto& entry : NamesOf(Enum{})) names.push_back(entry.name);
  return names;
}

}  // namespace sluice
