// SPDX-License-Identifier: Apache-2.0
// Facts about releases that several programs mention.
#pragma once

#include "absl/strings/string_view.h"

namespace sluice {

// The release that no longer accepts the old names of job keys and flags (docs/upgrading.md).
inline constexpr absl::string_view kOldNamesRemovedIn = "0.3";

}  // namespace sluice
