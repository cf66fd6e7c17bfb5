// SPDX-License-Identifier: Apache-2.0
// `sluice explain`: describes keys of the job file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cli {

// Returns `markdown` without `code` marks, and with the texts of [links](page.md) alone.
std::string PlainText(absl::string_view markdown);

// Returns the description of the key at `path` ("optimizer.lr"), followed by the keys of the
// section if it is one. An empty path means the whole job. Fails with NOT_FOUND for an unknown key.
absl::StatusOr<std::string> FormatKey(absl::string_view path);

// Returns a JSON object with one entry for the section at `path` and one for each section in it:
// from the section's path to the list of its keys. Fails as FormatKey does, and with
// INVALID_ARGUMENT for a key without keys of its own.
absl::StatusOr<std::string> KeysJson(absl::string_view path);

}  // namespace sluice::cli
