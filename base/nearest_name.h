// NearestName: the known name that a misspelled name most likely stands for.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// Returns the first of the known names that have the fewest edits from `name`. An edit is an
// insertion, a deletion, a change, or a swap of neighbours. Returns an empty string if this number
// of edits is above a third of the letters of the longer name, or above 2 for short names.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> known);

}  // namespace sluice
