// NearestName: the known name that a misspelt one most likely meant.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// The first of the names with the fewest edits (insert, drop, change, swap neighbours) from `name`;
// empty if even that needs more edits than a third of the longer one's letters, or than 2 for short
// ones.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> known);

}  // namespace sluice
