// SPDX-License-Identifier: Apache-2.0
// NearestName: the known name that a misspelled name most likely stands for.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// Returns the known name with the fewest edits from `name`; the first one wins a tie. An edit is an
// insertion, a deletion, a substitution, or a swap of adjacent letters. Returns an empty string if
// there are more edits than a third of the longer name's letters, or more than 2 for short names.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> known);

}  // namespace sluice
