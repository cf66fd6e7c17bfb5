// SPDX-License-Identifier: Apache-2.0
// Damaged: returns the error for a file in a checkpoint folder whose contents differ from the
// written bytes.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::protocol {

inline absl::Status Damaged(absl::string_view path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", what));
}

}  // namespace sluice::protocol
